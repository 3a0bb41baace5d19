{{- /* Where there is a HyperConverged object its operator makes the KubeVirt object. */ -}}
{{- if ne (dig "kind" "" .Platform.Object) "HyperConverged" }}
{{- $evict := hasAnnotation "evict-by-hibernation" "true" }}
{{- $emulate := hasAnnotation "use-emulation" "true" }}
# The KubeVirt object, by which vmlet is configured. It has no opinion unless somebody asks for one:
# each field that were set here would be taken from the administrator, and VMs would change their
# ways on the day that the autopilot is switched on.
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata:
  name: {{ .Platform.Name | toJson }}
  namespace: {{ .Platform.Namespace | toJson }}
  {{- if eq .Platform.Kind "KubeVirt" }}
  {{- with dig "metadata" "uid" "" .Platform.Object }}
  uid: {{ . | toJson }} # an apply must not make the object again that somebody deletes
  {{- end }}
  {{- end }}
  annotations:
    platform.kubevirt.io/version: 1.0.0
{{- if or $evict $emulate }}
spec:
  configuration:
    {{- if $evict }}
    # A drain saves VMs and has them go on elsewhere, where without it they shut down. Each VM that
    # can be saved gets a claim for its memory: docs/hibernation.md.
    evictionStrategy: Hibernate
    {{- end }}
    {{- if $emulate }}
    developerConfiguration:
      # A cluster without KVM: guests are emulated, and slow.
      useEmulation: true
    {{- end }}
{{- else }}
spec: {}
{{- end }}
{{- end }}
