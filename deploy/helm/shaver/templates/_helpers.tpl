{{- /* The labels of an object: a list of the root, a name and, optionally, more labels. Services and
policies find pods by the name. */}}
{{- define "shaver.labels" -}}
{{- $root := first . }}
{{- $version := $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- if eq (index . 1) "nats" }}{{ $version = $root.Values.nats.image.tag }}{{ end }}
{{- $labels := fromYaml (include "shaver.pod-labels" .) }}
{{- $_ := set $labels "app.kubernetes.io/version" ($version | trunc 63 | trimAll "-_.") }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") }}
{{- toYaml $labels }}
{{- end }}

{{- /* The same for the pods of an object. A new version of the chart does not change them, because
that would restart NATS. */}}
{{- define "shaver.pod-labels" -}}
{{- $root := first . }}
{{- $labels := dict "app.kubernetes.io/name" (index . 1) "app.kubernetes.io/part-of" "shaver" "app.kubernetes.io/instance" $root.Release.Name }}
{{- range slice . 2 }}{{ $labels = merge $labels (default dict .) }}{{ end }}
{{- toYaml (merge $labels (default dict $root.Values.commonLabels)) }}
{{- end }}

{{- define "shaver.image" -}}
{{- with .Values.image -}}
{{ required "image.repository is not set: set it to the name of the image that you built and pushed, such as registry.example.com/shaver" .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{- /* The resources of a container, with what it asks of the node's disk. */}}
{{- define "shaver.resources" -}}
{{- $r := deepCopy .resources }}
{{- $_ := set $r.requests "ephemeral-storage" .disk }}
{{- toYaml $r }}
{{- end }}

{{- /* The node's disk for the log of a container that writes no other files. */}}
{{- define "shaver.log-disk" -}}
100Mi
{{- end }}

{{- /* Spreads pods of this name over zones and nodes, as far as these have room. */}}
{{- define "shaver.spread" -}}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app.kubernetes.io/name: {{ $ }}
{{- end }}
{{- end }}

{{- /* What the restricted profile of pod security asks of a pod. */}}
{{- define "shaver.pod" -}}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .place }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The same for a container. */}}
{{- define "shaver.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "shaver.limits" -}}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef:
      resource: requests.memory
- name: GOMAXPROCS
  valueFrom:
    resourceFieldRef:
      resource: limits.cpu
{{- end }}

{{- /* The port of the metrics, and the probes on it. */}}
{{- define "shaver.health" -}}
ports:
  - name: metrics
    containerPort: 9090
startupProbe: # opening the port may take a while on slow storage
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 2
  failureThreshold: 300
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 5
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 30
  timeoutSeconds: 5
{{- end }}

{{- define "shaver.secret" -}}
- name: nats
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}

{{- /* The flags of a client of NATS. */}}
{{- define "shaver.connection" -}}
- --nats={{ .Values.nats.url }}
- --nkey=/etc/shaver/nats/nkey
- --tlsca=/etc/shaver/nats/ca.crt
{{- end }}

{{- define "shaver.store" -}}
{{- if .Values.workers.store }}
- --store=dir:/data
{{- end }}
{{- with .Values.workers.kernel }}
- --kernel={{ . }}
{{- end }}
{{- end }}

{{- /* The label by which Kueue queues a Job, for "shaver.labels". */}}
{{- define "shaver.queue" -}}
{{- with .Values.queue }}
kueue.x-k8s.io/queue-name: {{ . }}
{{- end }}
{{- end }}

{{- /* The labels and annotations of the Job of a coordinator or night: the root, the name, and annotations
that it has anyway. */}}
{{- define "shaver.job-metadata" -}}
{{- $c := .root.Values.coordinators -}}
labels: {{- include "shaver.labels" (list .root .name (fromYaml (include "shaver.queue" .root)) $c.labels) | nindent 2 }}
{{- with merge (default dict .annotations) (default dict $c.annotations) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What a Job does after each exit code of a coordinator or night. */}}
{{- define "shaver.job" -}}
{{- with .root.Values.coordinators -}}
completions: 1
parallelism: 1
{{- if .suspend }}
suspend: true
{{- end }}
# A pod that is deleted or killed counts, and the next pod resumes the job. One that ends because
# the Job is suspended does not count.
backoffLimit: {{ .backoffLimit }}
# A job that gets no workers ends before the next night.
activeDeadlineSeconds: {{ .activeDeadlineSeconds }}
ttlSecondsAfterFinished: {{ .ttlSecondsAfterFinished }}
{{- end }}
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    - action: Ignore # evicted, which is not the job's fault
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    # Wrong usage, not converged, shards left out, another coordinator leads, cancelled by
    # shaver job cancel, failed check, bad input: another try would not help.
    - action: FailJob
      onExitCodes:
        containerName: {{ .container }}
        operator: In
        values: [2, 3, 4, 5, 6, 7, 42]
{{- end }}

{{- /* The labels and annotations of a coordinator's pod. */}}
{{- define "shaver.coordinator-metadata" -}}
labels: {{- include "shaver.pod-labels" (list . "coordinator" .Values.coordinators.podLabels) | nindent 2 }}
{{- with .Values.coordinators.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The spec of a coordinator's pod. The caller gives its container the name, command and arguments. */}}
{{- define "shaver.coordinator" -}}
{{- $c := .root.Values.coordinators -}}
restartPolicy: Never
serviceAccountName: {{ .root.Values.serviceAccounts.coordinator }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 30
{{ include "shaver.pod" (dict "root" .root "place" $c) }}
containers:
  - {{ include "shaver.program" . | indent 4 | trim }}
volumes: {{- include "shaver.volumes" . | nindent 2 }}
{{- end }}

{{- define "shaver.volumes" -}}
{{ include "shaver.secret" .root.Values.secrets.coordinator }}
- name: scratch
  emptyDir:
    sizeLimit: {{ .root.Values.coordinators.scratch }}
{{- if .root.Values.data.enabled }}
- name: data
  persistentVolumeClaim:
    claimName: {{ .root.Values.data.claim }}
{{- end }}
{{- if .config }}
- name: config
  configMap:
    name: {{ .config }}
{{- end }}
{{- end }}

{{- define "shaver.program" -}}
{{- $c := .root.Values.coordinators -}}
name: {{ .container }}
image: {{ include "shaver.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: {{ toJson .command }}
args: {{- .args | nindent 2 }}
env:
  {{- include "shaver.limits" . | nindent 2 }}
  {{- if .jobName }}
  - name: JOB_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.labels['batch.kubernetes.io/job-name']
  # After "shaver job cancel" no later pod of this Job submits the job again.
  - name: SHAVER_RUN
    valueFrom:
      fieldRef:
        fieldPath: metadata.labels['batch.kubernetes.io/controller-uid']
  {{- end }}
  - name: SHAVER_SCRATCH
    value: /scratch
  - name: TMPDIR
    value: /scratch
  {{- with $c.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $c.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "shaver.health" . }}
resources: # requests.memory is 90% of its limit and becomes GOMEMLIMIT
  {{- include "shaver.resources" (dict "resources" $c.resources "disk" $c.scratch) | nindent 2 }}
{{ include "shaver.container" . }}
volumeMounts:
  - name: nats
    mountPath: /etc/shaver/nats
    readOnly: true
  - name: scratch
    mountPath: /scratch
  {{- if .root.Values.data.enabled }}
  - name: data
    mountPath: /data
  {{- end }}
  {{- if .config }}
  - name: config
    mountPath: /etc/shaver/nightly
    readOnly: true
  {{- end }}
{{- end }}

{{- define "shaver.night" -}}
{{ include "shaver.coordinator" (dict "root" . "container" "nightly" "config" .Values.nightly.name "command" (list "/bin/shaver") "args" (include "shaver.night-args" .)) }}
{{- end }}

{{- define "shaver.night-args" -}}
- nightly
- --config=/etc/shaver/nightly/nightly.yaml
- --log=json
- --output=json
- --verbose
{{- with .Values.nightly.args }}
{{ toYaml . }}
{{- end }}
{{- end }}
