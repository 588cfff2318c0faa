{{- define "mcp-sidecar-app.selectorLabels" -}}
app.kubernetes.io/name: mcp-sidecar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcp-sidecar-app.labels" -}}
{{ include "mcp-sidecar.labels" (list . .Values.sidecar) }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "mcp-sidecar-app.name" -}}
{{- include "mcp-sidecar.fullname" (list . .Values.sidecar) }}
{{- end }}

{{/*
Fills in what other values say about the sidecar, and refuses values that can't work together. To be included
before the templates of the library.
*/}}
{{- define "mcp-sidecar-app.prepare" -}}
{{- $v := .Values }}
{{- if eq $v.mode "sidecar" }}
{{- if not $v.backend.image.repository }}
{{- fail "backend.image.repository: name the image of your MCP server, or choose another mode" }}
{{- end }}
{{- $config := $v.sidecar.config }}
{{- if not (or $config.upstream $config.servers $config.stdio) }}
{{- $_ := set $config "upstream" (printf "http://127.0.0.1:%d%s" (int $v.backend.port) $v.backend.path) }}
{{- end }}
{{- range $name, $port := $v.sidecar.ports }}
{{- if eq (int $port) (int $v.backend.port) }}
{{- fail (printf "backend.port: %d is the value of sidecar.ports.%s too, and they share the pod's network" (int $port) $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- $need := include "mcp-sidecar.drainSeconds" (list . $v.sidecar) | int }}
{{- if eq $v.mode "sidecar" }}
{{- $need = add $need (int $v.backend.preStopSeconds) | int }}
{{- end }}
{{- if le (int $v.terminationGracePeriodSeconds) $need }}
{{- fail (printf "terminationGracePeriodSeconds: must be more than %d (backend.preStopSeconds, sidecar.drain and 15 s to close), got %d: calls would be cut off" $need (int $v.terminationGracePeriodSeconds)) }}
{{- end }}
{{- if $v.persistence.enabled }}
{{- $_ := set $v.sidecar.state "claimName" (printf "%s-state" (include "mcp-sidecar-app.name" .)) }}
{{- end }}
{{- $rolling := ne $v.strategy.type "Recreate" }}
{{- if $v.sidecar.state.claimName }}
{{- if $rolling }}
{{- fail "strategy.type: must be Recreate where the state is on a PersistentVolumeClaim, because the next pod can't open it before this one has ended and a rollout would never finish" }}
{{- end }}
{{- if gt (int $v.replicaCount) 1 }}
{{- fail (printf "replicaCount: must be 1 where the state is on a PersistentVolumeClaim, got %d" (int $v.replicaCount)) }}
{{- end }}
{{- end }}
{{- $surge := dig "rollingUpdate" "maxSurge" 0 $v.strategy | toString }}
{{- $unavailable := dig "rollingUpdate" "maxUnavailable" 0 $v.strategy | toString }}
{{- if and $rolling $v.strategy.rollingUpdate (has $surge (list "0" "0%")) (has $unavailable (list "0" "0%")) }}
{{- fail "strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, no pod could ever be replaced" }}
{{- end }}
{{- end }}

{{- define "mcp-sidecar-app.backendImage" -}}
{{- with .Values.backend.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (required "backend.image.tag: give a tag, or backend.image.digest" .tag) }}
{{- end }}
{{- end }}
{{- end }}
