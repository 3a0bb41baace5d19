{{- /* Only where the HyperConverged object is there, and so is what the annotations are on: making one
     would install an operator's whole platform. */ -}}
{{- if eq (dig "kind" "" .Platform.Object) "HyperConverged" }}
# The HyperConverged object as it is to be: with no opinion on its spec. Each field that were set here
# would be taken from the administrator, who has it from the operator's defaults or from a decision
# of his own.
apiVersion: hco.kubevirt.io/v1beta1
kind: HyperConverged
metadata:
  name: {{ .Platform.Name | toJson }}
  namespace: {{ .Platform.Namespace | toJson }}
  {{- with dig "metadata" "uid" "" .Platform.Object }}
  uid: {{ . | toJson }} # an apply must not make the object again that somebody deletes
  {{- end }}
  annotations:
    platform.kubevirt.io/version: 1.0.0
spec: {}
{{- end }}
