# Nodes and VMs. Grafana's sidecar finds it by its label.
apiVersion: v1
kind: ConfigMap
metadata:
  name: vmlet-dashboard
  namespace: {{ .Namespace | toJson }}
  labels:
    grafana_dashboard: "1"
data:
  vmlet.json: {{ readAsset "monitoring/manifests/vmlet.json" | toJson }}
