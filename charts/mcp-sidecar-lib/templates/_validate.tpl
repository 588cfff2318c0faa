{{/*
Refuses values that can't work together. The other templates include it; what the schema of the values can say is
not repeated here.
*/}}
{{- define "mcp-sidecar.validate" -}}
{{- $v := index . 1 }}
{{- $seen := dict }}
{{- range $name := list "agents" "ops" "admin" "register" }}
{{- $port := int (index $v.ports $name) | toString }}
{{- if ne $port "0" }}
{{- if hasKey $seen $port }}
{{- fail (printf "ports.%s of mcp-sidecar: %s is the value of ports.%s too, give each its own port" $name $port (get $seen $port)) }}
{{- end }}
{{- $_ := set $seen $port $name }}
{{- end }}
{{- end }}
{{- $c := $v.config }}
{{- if not (or $c.upstream $c.servers $c.stdio) }}
{{- fail "config.upstream of mcp-sidecar: give the backend's URL, such as http://127.0.0.1:9000/mcp, or list config.servers" }}
{{- end }}
{{- if and (int $v.ports.register) (not (include "mcp-sidecar.registers" $c)) }}
{{- fail "ports.register of mcp-sidecar: nobody could register, set registerTokenFile at an entry of config.agentServers" }}
{{- end }}
{{- if and $v.image.tag (contains ":" $v.image.tag) }}
{{- fail (printf "image.tag of mcp-sidecar: want a tag, got %q; a digest goes into image.digest" $v.image.tag) }}
{{- end }}
{{- if not (or $v.image.tag $v.image.digest) }}
{{- fail "image.tag of mcp-sidecar: give a tag, or image.digest" }}
{{- end }}
{{- include "mcp-sidecar.validateFiles" (dict "v" $v "at" "config" "in" $c) }}
{{- end }}

{{- define "mcp-sidecar.registers" -}}
{{- range .agentServers }}
{{- if .registerTokenFile }}yes{{ end }}
{{- end }}
{{- end }}

{{/* A file of the configuration below our directory of Secrets must be in one that is mounted. */}}
{{- define "mcp-sidecar.validateFiles" -}}
{{- $v := .v }}{{ $at := .at }}
{{- range $key, $value := .in }}
{{- if kindIs "map" $value }}
{{- include "mcp-sidecar.validateFiles" (dict "v" $v "at" (printf "%s.%s" $at $key) "in" $value) }}
{{- else if kindIs "slice" $value }}
{{- range $i, $entry := $value }}
{{- if kindIs "map" $entry }}
{{- include "mcp-sidecar.validateFiles" (dict "v" $v "at" (printf "%s.%s[%d]" $at $key $i) "in" $entry) }}
{{- end }}
{{- end }}
{{- else if and (kindIs "string" $value) (hasPrefix "/etc/mcp-sidecar/secrets/" $value) }}
{{- $name := index (splitList "/" (trimPrefix "/etc/mcp-sidecar/secrets/" $value)) 0 }}
{{- if not (hasKey $v.secrets $name) }}
{{- fail (printf "%s.%s of mcp-sidecar: %s is in no Secret that is mounted, add secrets.%s" $at $key $value $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
