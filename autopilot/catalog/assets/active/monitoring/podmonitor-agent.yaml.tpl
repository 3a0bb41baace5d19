{{- /* Has Prometheus read the agents' metrics.
     Prometheus' operator selects by labels that each installation chooses: monitoring-labels names them,
     such as release=prometheus. */ -}}
{{- $manifest := readAsset "monitoring/manifests/podmonitor-agent.yaml" | fromYaml -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: vmlet-agents
  namespace: {{ .Namespace | toJson }}
  {{- with labels "monitoring-labels" }}
  labels: {{ . | toJson }}
  {{- end }}
spec: {{ $manifest.spec | toJson }}
