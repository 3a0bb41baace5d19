# For pods of your own that run a VM (docs/vms-in-pods.md) and request the guest's memory alone:
# the scheduler adds what the VM takes beside it.
#
# Not for VirtualMachines: the requests of their pods have the VM's own overhead already, to the
# byte. That is why the KubeVirt object's defaultRuntimeClass is not set to it.
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: vmlet
# VMs in pods need no runtime of their own: this is containerd's by default. CRI-O may have crun
# alone: the annotation platform.kubevirt.io/runtime-handler names that. It can't be changed in a
# class that exists.
handler: {{ annotation "runtime-handler" | default "runc" | toJson }}
overhead:
  podFixed:
    # `vmlet overhead` of a VM with 4 vCPUs, 4 GiB, UEFI, one disk, cloud-init and one network, under
    # KVM with QEMU. A larger guest takes 6.3 MiB more for each GiB, for page tables: a pod with such
    # a VM has it in its own requests.
    memory: 102Mi
scheduling:
  # Nodes whose agent says that VMs can run there.
  nodeSelector:
    kubevirt.io/schedulable: "true"
