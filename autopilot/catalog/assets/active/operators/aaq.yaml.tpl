{{- /* HyperConverged's operator makes this object itself. */ -}}
{{- if ne .Platform.Kind "HyperConverged" }}
# Quotas that count VMs: Application-Aware Quota.
apiVersion: aaq.kubevirt.io/v1alpha1
kind: AAQ
metadata:
  name: aaq
spec:
  configuration:
    vmiCalculatorConfiguration:
      # A VM counts as its pod does: with what it takes beside its memory, which nodes give it, too.
      configName: VmiPodUsage
{{- end }}
