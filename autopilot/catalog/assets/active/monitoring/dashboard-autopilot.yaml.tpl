# What the autopilot keeps, and how that goes. Grafana's sidecar finds it by its label.
apiVersion: v1
kind: ConfigMap
metadata:
  name: vmlet-autopilot-dashboard
  namespace: {{ .Namespace | toJson }}
  labels:
    grafana_dashboard: "1"
data:
  vmlet-autopilot.json: {{ readAsset "monitoring/manifests/autopilot.json" | toJson }}
