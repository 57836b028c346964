{{- define "edt.name" -}}
{{- $name := ternary .Release.Name (printf "%s-edt-studio" .Release.Name) (contains "edt-studio" .Release.Name) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "edt.labels" -}}
app.kubernetes.io/name: edt-studio
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "edt.chosen" -}}
app.kubernetes.io/name: edt-studio
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "edt.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- define "edt.pilots.namespace" -}}
{{- .Values.pilots.namespace | default .Release.Namespace -}}
{{- end }}

{{/* What of a pilot's spec is otherwise than the studio has it by itself, as JSON; empty where nothing is. */}}
{{- define "edt.pod" -}}
{{- $pod := .Values.pilots.pod -}}
{{- if .Values.imagePullSecrets }}{{ $pod = merge (dict) $pod (dict "imagePullSecrets" .Values.imagePullSecrets) }}{{ end -}}
{{- if $pod }}{{ $pod | toJson }}{{ end -}}
{{- end }}

{{/* What all processes of the studio are told. Passwords are in the Secret. */}}
{{- define "edt.environment" -}}
- {name: EDT_HOME, value: /var/lib/edt}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.connections.secretName }}, key: DATABASE_URL}}
- name: EDT_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.connections.secretName }}, key: EDT_REDIS_URL}}
- {name: EDT_ALLOWED_HOSTS, value: {{ printf "%s,%s" .Values.studio.host (include "edt.name" .) | quote }}}
- {name: EDT_TRUSTED_ORIGINS, value: {{ printf "https://%s" .Values.studio.host | quote }}}
- {name: EDT_PUBLIC_URL, value: {{ printf "https://%s" .Values.studio.host | quote }}}
- {name: EDT_TRUSTED_PROXIES, value: {{ .Values.studio.trustedProxies | quote }}}
- {name: EDT_HTTPS, value: "true"}
{{- if .Values.pilots.enabled }}
- {name: EDT_KUBERNETES_NAMESPACE, value: {{ include "edt.pilots.namespace" . | quote }}}
- {name: EDT_KUBERNETES_IMAGE, value: {{ include "edt.image" . | quote }}}
- {name: EDT_KUBERNETES_COMMAND, value: {{ .Values.pilots.command | quote }}}
- {name: EDT_KUBERNETES_GPU, value: {{ .Values.pilots.gpuResource | quote }}}
{{- if include "edt.pod" . }}
- {name: EDT_KUBERNETES_POD, value: /etc/edt/pod.json}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.studio.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "edt.container" -}}
image: {{ include "edt.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
env:
  {{- include "edt.environment" . | nindent 2 }}
{{- end }}

{{/* Of the two processes that ask the cluster for pods, or say what it has. */}}
{{- define "edt.mounts.asking" -}}
- {name: home, mountPath: /var/lib/edt}
- {name: temporary, mountPath: /tmp}
{{- if .Values.pilots.enabled }}
- {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- if include "edt.pod" . }}
- {name: pod, mountPath: /etc/edt, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
