{{- with annotation "vfio-pci-ids" }}
{{- /* A line of its own in this file could be a command that root runs. */ -}}
{{- if not (matches "[0-9a-f]{4}:[0-9a-f]{4}(,[0-9a-f]{4}:[0-9a-f]{4})*" .) }}
{{- fail "annotation platform.kubevirt.io/vfio-pci-ids: want VENDOR:DEVICE,... of four hexadecimal digits each, as 10de:1eb8" }}
{{- end }}
# PCI devices of these kinds are for guests, on every worker: the driver vfio-pci takes them when a node starts. A
# kind that nodes themselves need, such as that of their disks' controller, must not be among them. Nodes are
# rebooted one after another.
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-virt-vfio-devices
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
        - path: /etc/modules-load.d/virt-vfio-devices.conf
          mode: 420 # 0644; Ignition takes decimal numbers
          overwrite: true
          contents:
            source: data:,vfio-pci%0A
        - path: /etc/modprobe.d/virt-vfio-devices.conf
          mode: 420
          overwrite: true
          contents:
            source: {{ printf "data:,options%%20vfio-pci%%20ids%%3D%s%%0A" . | toJson }}
{{- end }}
