{{- /* Has Prometheus read the metrics of vmlet-controller and vmlet-api.
     Prometheus' operator selects by labels that each installation chooses: monitoring-labels names them,
     such as release=prometheus. */ -}}
{{- $manifest := readAsset "monitoring/manifests/podmonitor-control.yaml" | fromYaml -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: vmlet-control
  namespace: {{ .Namespace | toJson }}
  {{- with labels "monitoring-labels" }}
  labels: {{ . | toJson }}
  {{- end }}
spec: {{ $manifest.spec | toJson }}
