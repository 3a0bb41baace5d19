# The agents' configuration, below the one that deploy/base makes: what is in that counts. An agent
# reads both when it starts.
#
# KubeVirt's users have their host devices and obsolete CPU models in the KubeVirt object; vmlet's
# agents, which know nothing of that object, have them in their own files. This carries them over.
{{- $devices := dig "spec" "configuration" "permittedHostDevices" nil .Platform.Object }}
{{- $models := dig "spec" "configuration" "obsoleteCPUModels" nil .Platform.Object }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: vmlet-agent-platform
  namespace: {{ .Namespace | toJson }}
data:
  agent.yaml: |
    # Made by vmlet-autopilot. To change it: platform.kubevirt.io/patch on this ConfigMap.
    {{- if not (or $devices $models) }}
    {}
    {{- end }}
    {{- with $devices }}
    permittedHostDevices: {{ toJson . }}
    {{- end }}
    {{- with $models }}
    obsoleteCPUModels: {{ toJson . }}
    {{- end }}
