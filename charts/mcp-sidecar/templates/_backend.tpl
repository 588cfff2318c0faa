{{- define "mcp-sidecar-app.backend" -}}
{{- $b := .Values.backend -}}
- name: backend
  image: {{ include "mcp-sidecar-app.backendImage" . }}
  imagePullPolicy: {{ $b.image.pullPolicy }}
  {{- with $b.command }}
  command:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $b.args }}
  args:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $b.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $b.envFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $name := list "startupProbe" "readinessProbe" "livenessProbe" }}
  {{- with index $b $name }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if int $b.preStopSeconds }}
  lifecycle:
    preStop:
      # The backend goes on until the pod has left the Service everywhere.
      {{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}
      sleep:
        seconds: {{ int $b.preStopSeconds }}
      {{- else }}
      exec:
        command: [sleep, {{ int $b.preStopSeconds | quote }}]
      {{- end }}
  {{- end }}
  {{- with $b.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $b.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $b.volumeMounts }}
  volumeMounts:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
