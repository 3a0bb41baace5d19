package convert

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// The CPU models that stand for the node's own processor.
const (
	HostModel       = "host-model"
	HostPassthrough = "host-passthrough"
)

// What KubeVirt's guests read about their machine where the configuration says nothing.
// Guests' tools detect KubeVirt by it.
const (
	smbiosMaker   = "KubeVirt"
	smbiosProduct = "None"
)

// MachineType is the specification's; empty: the VMM's default.
func MachineType(in Input) string {
	if in.Instance.Spec.Domain.Machine == nil {
		return ""
	}
	arch, machine := Architecture(in), KnownMachine(in.Instance.Spec.Domain.Machine.Type)
	switch {
	case machine == defaultMachine(arch):
		return ""
	case !in.traits().MachineTypes && machine == in.Configuration.MachineType[arch]:
		return ""
	}
	return machine
}

// KnownMachine is a machine type by a name that every QEMU may know. Those of Red Hat's QEMU,
// which OpenShift Virtualization writes into VMs, are the newest of their kind elsewhere.
func KnownMachine(name string) string {
	for prefix, known := range map[string]string{"pc-q35-rhel": "q35", "virt-rhel": "virt"} {
		if strings.HasPrefix(name, prefix) {
			return known
		}
	}
	return name
}

func cpu(c *kubevirtv1.CPU) *specv1.CPU {
	if c == nil {
		return nil
	}
	out := &specv1.CPU{
		Sockets: uint32(max(c.Sockets, 0)),
		Cores:   uint32(max(c.Cores, 0)),
		Threads: uint32(max(c.Threads, 0)),
	}
	if c.DedicatedCPUPlacement {
		out.Dedicated = &specv1.DedicatedCPUs{IsolateEmulatorThread: c.IsolateEmulatorThread}
	}
	if c.MaxSockets > 0 {
		out.MaxVcpus = uint32(c.MaxSockets) * max(out.Cores, 1) * max(out.Threads, 1)
	}
	// Left unset, the hypervisor's default is the node's processor, and under emulation all
	// that can be emulated.
	if c.Model != HostModel && c.Model != HostPassthrough {
		out.Model = c.Model
	}
	return out
}

// numa has the nodes left open: the node makes them of the CPUs that the pod was given.
func numa(c *kubevirtv1.CPU) *specv1.NUMA {
	if c == nil || c.NUMA == nil || c.NUMA.GuestMappingPassthrough == nil {
		return nil
	}
	return &specv1.NUMA{GuestMappingPassthrough: true}
}

// memory is rounded up to whole MiB, as the specification has them: 1024M is 977Mi.
func memory(m *kubevirtv1.Memory, path *field.Path) (*specv1.Memory, *field.Error) {
	if m == nil || m.Guest == nil || m.Guest.Sign() <= 0 {
		return nil, field.Required(path, "set the guest's memory, such as 1Gi")
	}
	size := uint64(wholeMiB(*m.Guest))
	if size > spec.MaxMemory {
		return nil, field.Invalid(path, m.Guest.String(), "is more than "+spec.FormatQuantity(spec.MaxMemory)+", the most that a guest can have")
	}
	out := &specv1.Memory{Size: spec.FormatQuantity(size)}
	if m.Hugepages != nil {
		out.HugePages = &specv1.HugePages{PageSize: m.Hugepages.PageSize}
	}
	return out, nil
}

// GuestMemory is a guest's memory as its specification has it, in bytes.
func GuestMemory(s *kubevirtv1.VirtualMachineInstanceSpec) (uint64, error) {
	m, fault := memory(s.Domain.Memory, field.NewPath("spec.domain.memory.guest"))
	if fault != nil {
		return 0, fault
	}
	return spec.ParseQuantity(m.GetSize())
}

const mib = 1 << 20

// wholeMiB rounds a positive quantity up, in bytes.
func wholeMiB(q resource.Quantity) int64 {
	bytes := q.Value()
	if rest := bytes % mib; rest != 0 && bytes < bytes-rest+mib {
		bytes += mib - rest
	}
	return bytes
}

func boot(f *kubevirtv1.Firmware) *specv1.Boot {
	if f == nil {
		return nil
	}
	b := new(specv1.Boot)
	switch {
	case f.Bootloader != nil && f.Bootloader.BIOS != nil:
		b.Firmware = spec.FirmwareBIOS
	case f.Bootloader != nil && f.Bootloader.EFI != nil:
		b.Firmware = spec.FirmwareUEFI
	}
	if k := f.KernelBoot; k != nil && k.Container != nil && k.Container.KernelPath != "" {
		// A block of YAML ends in a newline.
		b.Kernel = &specv1.KernelBoot{Path: KernelSocket, Cmdline: strings.TrimSpace(k.KernelArgs)}
		if k.Container.InitrdPath != "" {
			b.Kernel.Initrd = InitrdSocket
		}
	}
	if proto.Size(b) == 0 {
		return nil
	}
	return b
}

// system is what SMBIOS tells the guest.
func system(in Input) *specv1.SystemInformation {
	domain, smbios := &in.Instance.Spec.Domain, in.Configuration.SMBIOS
	s := &specv1.SystemInformation{Uuid: UUID(in.Instance)}
	if domain.Firmware != nil {
		s.Serial = domain.Firmware.Serial
	}
	if in.traits().SMBIOS {
		s.Manufacturer, s.Family = cmp.Or(smbios.Manufacturer, smbiosMaker), cmp.Or(smbios.Family, smbiosMaker)
		s.Product, s.Version, s.Sku = cmp.Or(smbios.Product, smbiosProduct), smbios.Version, smbios.SKU
	}
	return s
}
