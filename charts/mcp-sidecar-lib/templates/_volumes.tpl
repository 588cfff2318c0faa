{{/* The sidecar's items of a pod's volumes. */}}
{{- define "mcp-sidecar.volumes" -}}
{{- $v := index . 1 -}}
- name: mcp-sidecar-config
  configMap:
    name: {{ include "mcp-sidecar.fullname" . }}-config
- name: mcp-sidecar-session-key
  secret:
    secretName: {{ include "mcp-sidecar.sessionKeySecret" . }}
    items:
      - key: {{ $v.sessionKey.key }}
        path: session.key
{{- range $name, $s := $v.secrets }}
- name: mcp-sidecar-secret-{{ $name }}
  secret:
    secretName: {{ $s.secretName }}
    {{- if $s.optional }}
    optional: true
    {{- end }}
{{- end }}
- name: mcp-sidecar-state
  {{- if $v.state.claimName }}
  persistentVolumeClaim:
    claimName: {{ $v.state.claimName }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ $v.state.sizeLimit }}
  {{- end }}
{{- end }}

{{/*
Annotations of the pod. The sidecar takes up most of its configuration while it runs; the checksum covers only what
needs a restart, so that other changes replace no pod.
*/}}
{{- define "mcp-sidecar.podAnnotations" -}}
{{- $v := index . 1 -}}
mcp-sidecar/restart-checksum: {{ pick $v.config "listenTransport" "tlsCertFile" "tlsKeyFile" "logFormat" "refreshConcurrency" "redis" "redisPasswordFile" "redisCaFile" "redisPrefix" | toJson | sha256sum }}
{{- if not $v.state.claimName }}
# Nothing is lost when the node goes: without this the cluster autoscaler keeps the node for the volume.
cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: mcp-sidecar-state
{{- end }}
{{- end }}

{{/*
The shortest terminationGracePeriodSeconds of a pod in which no call is cut off, besides what the backend takes to
end: drain times, and a margin for closing.
*/}}
{{- define "mcp-sidecar.drainSeconds" -}}
{{- $v := index . 1 }}
{{- add (int $v.drain.delaySeconds) (int $v.drain.timeoutSeconds) 15 }}
{{- end }}
