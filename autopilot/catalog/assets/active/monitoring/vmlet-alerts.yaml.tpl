{{- /* The alerts of nodes and VMs.
     Prometheus' operator selects by labels that each installation chooses: monitoring-labels names them,
     such as release=prometheus. */ -}}
{{- $manifest := readAsset "monitoring/manifests/alerts.yaml" | fromYaml -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: vmlet
  namespace: {{ .Namespace | toJson }}
  {{- with labels "monitoring-labels" }}
  labels: {{ . | toJson }}
  {{- end }}
spec: {{ $manifest.spec | toJson }}
