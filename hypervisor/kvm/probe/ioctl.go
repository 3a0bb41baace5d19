package probe

// From linux/kvm.h: KVMIO is 0xAE and these are _IO(KVMIO, nr), the same on x86, arm64, s390x and RISC-V (see device.Request).
const (
	kvmAPIVersion = 12 // KVM_API_VERSION, the only one since Linux 2.6.22

	kvmGetAPIVersion   = 0xAE00 // KVM_GET_API_VERSION
	kvmCreateVM        = 0xAE01 // KVM_CREATE_VM
	kvmCheckExtension  = 0xAE03 // KVM_CHECK_EXTENSION
	kvmGetVCPUMmapSize = 0xAE04 // KVM_GET_VCPU_MMAP_SIZE
	kvmCreateVCPU      = 0xAE41 // KVM_CREATE_VCPU
	kvmRun             = 0xAE80 // KVM_RUN
)
