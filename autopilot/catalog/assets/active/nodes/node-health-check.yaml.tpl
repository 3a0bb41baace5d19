{{- /* A NodeHealthCheck without a remediation that can be done is refused by its operator's webhook:
     so the template is looked up, where the operators' usual installations put it. */ -}}
{{- $name := "self-node-remediation-automatic-strategy-template" }}
{{- $found := "" }}
{{- range $ns := list (annotation "remediation-namespace") "openshift-workload-availability" "openshift-operators" "operators" }}
{{- if and $ns (not $found) (lookup "self-node-remediation.medik8s.io/v1alpha1" "SelfNodeRemediationTemplate" $ns $name) }}
{{- $found = $ns }}
{{- end }}
{{- end }}
{{- if $found }}
# A node that does not answer is remedied: it reboots itself, and Kubernetes learns that nothing
# runs on it any more. Only then may its VMs start elsewhere.
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: virt-node-health-check
spec:
  # Where most nodes fail at once it is the network, or the API server: rebooting them helps nobody.
  minHealthy: 51%
  selector:
    matchExpressions:
      # Nodes that run VMs, with or without a role. Whatever the label's value is: a node on which no
      # VM can be started any more still has those that it runs.
      - key: kubevirt.io/schedulable
        operator: Exists
  unhealthyConditions:
    # Five minutes, as long as Kubernetes leaves pods on a node that is gone: a kubelet that restarts,
    # or a node that is rebooted, is back by then.
    - type: Ready
      status: "False"
      duration: 5m
    - type: Ready
      status: Unknown
      duration: 5m
  remediationTemplate:
    apiVersion: self-node-remediation.medik8s.io/v1alpha1
    kind: SelfNodeRemediationTemplate
    namespace: {{ $found | toJson }}
    name: {{ $name }}
{{- end }}
