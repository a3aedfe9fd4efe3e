{{- define "rowmill.name" -}}
{{- if contains "rowmill" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-rowmill{{ end }}
{{- end }}

{{- define "rowmill.cluster" -}}
{{ .Values.clusterName | default (include "rowmill.name" .) }}
{{- end }}

{{/* Labels of the pods of this release. */}}
{{- define "rowmill.selector" -}}
app.kubernetes.io/name: rowmill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of the pods of all releases in the cluster. */}}
{{- define "rowmill.clusterSelector" -}}
app.kubernetes.io/name: rowmill
app.kubernetes.io/part-of: {{ include "rowmill.cluster" . }}
{{- end }}

{{- define "rowmill.labels" -}}
{{ include "rowmill.selector" . }}
app.kubernetes.io/part-of: {{ include "rowmill.cluster" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "rowmill.image" -}}
{{ required "image.repository: name where the cluster pulls the image, such as registry.example.org/rowmill" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion | replace "+" "_" }}
{{- end }}

{{/* Security context of a container. */}}
{{- define "rowmill.confined" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The configured secrets, by the setting that names the file. */}}
{{- define "rowmill.secrets" -}}
{{- $s := .Values.secrets }}
{{- $all := dict "API_KEY" $s.apiKey "HTTP_SIGNING_KEY" $s.signingKey "LOG_AUDIT_WEBHOOK_SECRET" $s.auditWebhookSecret "OBJECTS_ACCESS_KEY" $s.objectsAccessKey "OBJECTS_SECRET_KEY" $s.objectsSecretKey }}
{{- if eq .Values.mode "cluster" }}
{{- $all = merge $all (dict "STORE_URL" $s.storeURL "CLUSTER_KEY" $s.gossipKey) }}
{{- end }}
{{- range $setting, $at := $all }}
{{- if $at.name }}
{{ $setting }}: {name: {{ $at.name | quote }}, key: {{ $at.key | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses invalid values here, before a pod fails to start. */}}
{{- define "rowmill.check" -}}
{{- range $key, $instead := dict
  "data" "the chart mounts a volume at /data; data.size says how large"
  "http.listen" "the chart sets it; service.port is the port for clients"
  "http.admin_listen" "the chart serves metrics on the port of the API; networkPolicy.apiFrom and the ingress limit who can read them"
  "http.tls_cert" "the chart leaves TLS of clients to the ingress"
  "jobs.drain_timeout" "set drainSeconds instead: the pod's time to end depends on it"
  "simulator.enabled" "set simulate instead"
  "cluster" "set role, clusterName, tls and secrets.gossipKey"
  "api_key" "the chart would write it into a ConfigMap; name a Secret in secrets.apiKey"
  "store.url" "the chart would write it into a ConfigMap; name a Secret in secrets.storeURL"
  "http.signing_key" "the chart would write it into a ConfigMap; name a Secret in secrets.signingKey"
  "log.audit_webhook_secret" "the chart would write it into a ConfigMap; name a Secret in secrets.auditWebhookSecret"
  "objects.access_key" "the chart would write it into a ConfigMap; name a Secret in secrets.objectsAccessKey"
  "objects.secret_key" "the chart would write it into a ConfigMap; name a Secret in secrets.objectsSecretKey"
  "tracing.headers" "the chart would write it into a ConfigMap; set tracing.headers_env, and its variable from a Secret in extraEnv" }}
{{- $at := $.Values.config }}
{{- range splitList "." $key }}
{{- $at = ternary $at dict (kindIs "map" $at) }}
{{- $at = get $at . }}
{{- end }}
{{- if $at }}{{ fail (printf "config.%s: %s" $key $instead) }}{{ end }}
{{- end }}
{{- range .Values.config.engines }}
{{- if and (kindIs "map" .) (get . "api_key") }}{{ fail "config.engines: the chart would write api_key into a ConfigMap; set api_key_env, and its variable from a Secret in extraEnv" }}{{ end }}
{{- end }}
{{- if not .Values.secrets.apiKey.name }}{{ fail "secrets.apiKey.name: name a Secret with the administrator's key; without one the first start would print a key into the log" }}{{ end }}
{{- if eq .Values.mode "single" }}
{{- if .Values.autoscaling.kind }}{{ fail "autoscaling.kind: a single node has its records on a volume of its own; mode: cluster has more nodes" }}{{ end }}
{{- if ne .Values.role "both" }}{{ fail "role: a single node does all; mode: cluster has roles" }}{{ end }}
{{- else }}
{{- if not .Values.secrets.storeURL.name }}{{ fail "secrets.storeURL.name: nodes of a cluster share a Redis server; name a Secret with its URL, or set mode: single" }}{{ end }}
{{- if not (or (and .Values.tls.name .Values.secrets.gossipKey.name) .Values.tls.insecure) }}{{ fail "tls.name and secrets.gossipKey.name: name Secrets with the certificate for requests between nodes and the key of the gossip, or set tls.insecure: true if only the nodes can reach ports 7946 and 7947" }}{{ end }}
{{- end }}
{{- if and .Values.inference.container .Values.config.engines }}{{ fail "config.engines: the node uses the server of inference.container; remove one of the two" }}{{ end }}
{{- if and .Values.simulate (or .Values.inference.container .Values.config.engines) }}{{ fail "simulate: made-up and real answers are never mixed; remove the inference servers, or simulate" }}{{ end }}
{{- if and (not .Values.simulate) (eq .Values.role "both" "engines") (not .Values.inference.container) (not .Values.config.engines) (not .Values.config.discover) }}{{ fail "config.engines: name inference servers, or one beside each node with inference.container, or set simulate: true for a trial" }}{{ end }}
{{- if and (eq .Values.autoscaling.kind "keda") (not .Values.autoscaling.prometheus) }}{{ fail "autoscaling.prometheus: KEDA asks Prometheus; name its URL, such as http://prometheus-operated.monitoring:9090" }}{{ end }}
{{- if and (eq .Values.autoscaling.kind "hpa") (lt (int .Values.autoscaling.min) 1) }}{{ fail "autoscaling.min: a HorizontalPodAutoscaler keeps at least one node; with KEDA the smallest number is 0" }}{{ end }}
{{- end }}
