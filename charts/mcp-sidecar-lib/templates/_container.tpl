{{/*
The sidecar as an item of a pod's initContainers: a native sidecar, which starts before the pod's containers and ends
after them.
*/}}
{{- define "mcp-sidecar.container" -}}
{{- include "mcp-sidecar.validate" . }}
{{- include "mcp-sidecar.containerOf" (dict "v" (index . 1) "native" true) }}
{{- end }}

{{/* The sidecar as an item of a pod's containers, where the backend is in other pods. */}}
{{- define "mcp-sidecar.standaloneContainer" -}}
{{- include "mcp-sidecar.validate" . }}
{{- include "mcp-sidecar.containerOf" (dict "v" (index . 1) "native" false) }}
{{- end }}

{{/* The one definition of the container. */}}
{{- define "mcp-sidecar.containerOf" -}}
{{- $v := .v -}}
{{- $admin := printf "127.0.0.1:%d" (int $v.ports.admin) -}}
- name: mcp-sidecar
  image: {{ include "mcp-sidecar.image" $v }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  {{- if .native }}
  restartPolicy: Always
  {{- end }}
  command: [mcp-sidecar]
  args:
    - run
    - --config=/etc/mcp-sidecar/config/config.yaml
    - --listen=:{{ int $v.ports.agents }}
    # The brackets are right for IPv4 addresses too.
    - --ops-listen=[$(POD_IP)]:{{ int $v.ports.ops }}
    - --admin-listen={{ $admin }}
    {{- if int $v.ports.register }}
    - --register-listen=:{{ int $v.ports.register }}
    {{- end }}
    - --state=/var/lib/mcp-sidecar/state.db
    - --session-key-file=/etc/mcp-sidecar/session-key/session.key
  env:
    - name: POD_IP
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    # For the commands that are run in the container.
    - name: MCP_SIDECAR_ADMIN_LISTEN
      value: {{ $admin }}
    {{- with include "mcp-sidecar.memoryLimit" $v }}
    - name: GOMEMLIMIT
      value: {{ . | quote }}
    {{- end }}
    {{- with $v.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: mcp-sidecar
      containerPort: {{ int $v.ports.agents }}
      protocol: TCP
    - name: mcp-ops
      containerPort: {{ int $v.ports.ops }}
      protocol: TCP
    {{- if int $v.ports.register }}
    - name: mcp-register
      containerPort: {{ int $v.ports.register }}
      protocol: TCP
    {{- end }}
  {{- range $name, $path := dict "startup" "startupz" "liveness" "livez" "readiness" "readyz" }}
  {{- $p := index $v.probes $name }}
  {{ $name }}Probe:
    httpGet:
      path: /{{ $path }}
      port: {{ int $v.ports.ops }}
    periodSeconds: {{ int $p.periodSeconds }}
    timeoutSeconds: {{ int $p.timeoutSeconds }}
    failureThreshold: {{ int $p.failureThreshold }}
  {{- end }}
  lifecycle:
    preStop:
      # Runs when the pod begins to end: the end of the backend is then not taken for a swap or an outage.
      exec:
        command: [mcp-sidecar, quiesce, "--admin=http://{{ $admin }}"]
  {{- with $v.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
    privileged: false
    readOnlyRootFilesystem: true
    runAsGroup: {{ int $v.runAsUser }}
    runAsNonRoot: true
    runAsUser: {{ int $v.runAsUser }}
    seccompProfile:
      type: RuntimeDefault
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    # Directories, never single files: a subPath mount doesn't see changes.
    - name: mcp-sidecar-config
      mountPath: /etc/mcp-sidecar/config
      readOnly: true
    - name: mcp-sidecar-session-key
      mountPath: /etc/mcp-sidecar/session-key
      readOnly: true
    {{- range $name, $_ := $v.secrets }}
    - name: mcp-sidecar-secret-{{ $name }}
      mountPath: /etc/mcp-sidecar/secrets/{{ $name }}
      readOnly: true
    {{- end }}
    - name: mcp-sidecar-state
      mountPath: /var/lib/mcp-sidecar
    {{- with $v.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "mcp-sidecar.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository .image.tag }}
{{- end }}
{{- end }}

{{/* 90 % of the memory limit in bytes, empty without one. */}}
{{- define "mcp-sidecar.memoryLimit" -}}
{{- with dig "limits" "memory" "" .resources }}
{{- $text := toString . }}
{{- if not (regexMatch "^[0-9]+(Ki|Mi|Gi|k|M|G)?$" $text) }}
{{- fail (printf "resources.limits.memory of mcp-sidecar: want a whole number with Ki, Mi or Gi, such as 256Mi, got %q" $text) }}
{{- end }}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "k" 1000 "M" 1000000 "G" 1000000000 }}
{{- $unit := index $units (regexFind "[A-Za-z]*$" $text) }}
{{- div (mul (regexFind "^[0-9]+" $text | int64) $unit 9) 10 }}
{{- end }}
{{- end }}
