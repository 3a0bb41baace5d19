# What the DaemonSet of deploy/node-tuning writes on nodes that are not OpenShift's: drop-ins of the
# kubelet's configuration, and huge pages. Without that DaemonSet it has no effect: the autopilot
# itself has no right on nodes.
apiVersion: v1
kind: ConfigMap
metadata:
  name: vmlet-node-tuning
  namespace: {{ .Namespace | toJson }}
{{- if or (hasAnnotation "enable-swap" "true") (hasAnnotation "enable-kubelet-performance-settings" "true") (annotation "hugepages-2Mi") }}
data:
  {{- if hasAnnotation "enable-swap" "true" }}
  # Swap itself must be there. Only pods of the quality of service Burstable use it, as VMs' are.
  90-vmlet-swap.conf: {{ readAsset "machine-config/kubelet-swap.conf" | toJson }}
  {{- end }}
  {{- if hasAnnotation "enable-kubelet-performance-settings" "true" }}
  90-vmlet-performance.conf: {{ readAsset "nodes/kubelet-performance.conf" | toJson }}
  {{- end }}
  {{- with annotation "hugepages-2Mi" }}
  # On each node, for guests that ask for huge pages.
  hugepages-2Mi: {{ toJson . }}
  {{- end }}
{{- end }}
