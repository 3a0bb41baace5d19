{{- /* The alerts of the autopilot itself.
     Prometheus' operator selects by labels that each installation chooses: monitoring-labels names them,
     such as release=prometheus. */ -}}
{{- $manifest := readAsset "monitoring/manifests/autopilot-alerts.yaml" | fromYaml -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: virt-platform-autopilot-alerts
  namespace: {{ .Namespace | toJson }}
  {{- with labels "monitoring-labels" }}
  labels: {{ . | toJson }}
  {{- end }}
spec: {{ $manifest.spec | toJson }}
