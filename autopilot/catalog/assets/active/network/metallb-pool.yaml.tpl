{{- /* An empty annotation names no addresses, and a pool without any is refused. */ -}}
{{- if trim (annotation "metallb-addresses") }}
# Addresses for Services of type LoadBalancer, as the annotation metallb-addresses lists them.
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata:
  name: vms
  namespace: metallb-system
spec:
  addresses:
    {{- range splitList "," (annotation "metallb-addresses") }}
    - {{ trim . | toJson }}
    {{- end }}
  # Also for Services that name no pool.
  autoAssign: true
{{- end }}
