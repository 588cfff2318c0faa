{{/* The objects that the container needs: its configuration and, unless there is one already, its session key. */}}
{{- define "mcp-sidecar.manifests" -}}
{{- include "mcp-sidecar.validate" . }}
{{- include "mcp-sidecar.configMap" . }}
{{- include "mcp-sidecar.sessionKey" . }}
{{- end }}

{{/*
What the configuration file has besides the values: drain times, and a prefix of its own for each release that shares a
Redis server with others.
*/}}
{{- define "mcp-sidecar.ownConfig" -}}
{{- $root := index . 0 }}{{ $v := index . 1 }}
drainDelay: {{ printf "%ds" (int $v.drain.delaySeconds) }}
drainTimeout: {{ printf "%ds" (int $v.drain.timeoutSeconds) }}
{{- if and $v.config.redis (not $v.config.redisPrefix) }}
redisPrefix: {{ printf "%s/%s" $root.Release.Namespace (include "mcp-sidecar.fullname" .) }}
{{- end }}
{{- end }}

{{- define "mcp-sidecar.configMap" -}}
{{- $root := index . 0 }}{{ $v := index . 1 }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "mcp-sidecar.fullname" . }}-config
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "mcp-sidecar.labels" . | nindent 4 }}
data:
  config.yaml: |
    {{- merge (include "mcp-sidecar.ownConfig" . | fromYaml) $v.config | toYaml | nindent 4 }}
{{- end }}

{{- define "mcp-sidecar.sessionKey" -}}
{{- $root := index . 0 }}{{ $v := index . 1 }}
{{- if not $v.sessionKey.existingSecret }}
{{- $name := include "mcp-sidecar.sessionKeySecret" . }}
{{- $found := lookup "v1" "Secret" $root.Release.Namespace $name }}
{{- $key := "" }}
{{- if $found }}
{{- $key = index (default dict $found.data) $v.sessionKey.key }}
{{- if not $key }}
{{- fail (printf "sessionKey.key of mcp-sidecar: the Secret %s has no entry %q" $name $v.sessionKey.key) }}
{{- end }}
{{- else if and $root.Release.IsUpgrade (not $v.sessionKey.allowNew) }}
{{- fail (printf "sessionKey of mcp-sidecar: this is an upgrade, and the cluster has no Secret %s, or can't be asked (helm template, a dry run on the client). A new key would end all sessions. Set sessionKey.existingSecret, or sessionKey.allowNew to have it so" $name) }}
{{- else }}
{{- $key = randBytes 32 | b64enc }}
{{- end }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "mcp-sidecar.labels" . | nindent 4 }}
  annotations:
    # It outlives the release, so that the next one goes on with the sessions.
    helm.sh/resource-policy: keep
# Whatever would change the key must fail: it would end all sessions.
immutable: true
type: Opaque
data:
  {{ $v.sessionKey.key }}: {{ $key }}
{{- end }}
{{- end }}
