{{/*
All public templates of this library take a list: the chart's context and the sidecar's values, as in
  {{ include "mcp-sidecar.container" (list . .Values.sidecar) }}
*/}}

{{/* The beginning of the names of the sidecar's objects. */}}
{{- define "mcp-sidecar.fullname" -}}
{{- $root := index . 0 }}{{ $v := index . 1 }}
{{- if $v.fullnameOverride }}
{{- $v.fullnameOverride }}
{{- else if contains "mcp-sidecar" $root.Release.Name }}
{{- $root.Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-mcp-sidecar" ($root.Release.Name | trunc 28 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{/* Labels of the objects that the library makes. */}}
{{- define "mcp-sidecar.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: mcp-sidecar
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of the Secret with the session key. */}}
{{- define "mcp-sidecar.sessionKeySecret" -}}
{{- $v := index . 1 }}
{{- default (printf "%s-session-key" (include "mcp-sidecar.fullname" .)) $v.sessionKey.existingSecret }}
{{- end }}
