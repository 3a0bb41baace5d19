package convert

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// Place is where an instance's fields are in the object that its user writes: an instance
// itself, or the template of a VirtualMachine.
type Place struct {
	Spec        *field.Path
	Annotations *field.Path
}

// InstancePlace is the place of an instance's own fields.
func InstancePlace() Place {
	return Place{Spec: field.NewPath("spec"), Annotations: field.NewPath("metadata", "annotations")}
}

// InstanceField returns the field of an instance that a field of its specification comes
// from: the nearest that is known, and at worst the whole spec. A disk that only its volume
// names, as defaults are not filled in yet, is the volume.
func InstanceField(name string, s *kubevirtv1.VirtualMachineInstanceSpec, at Place) *field.Path {
	domain := at.Spec.Child("domain")
	devices := domain.Child("devices")
	list, index, rest := indexed(name)
	switch {
	case list == "disks" && index < len(s.Domain.Devices.Disks):
		return diskField(rest, s, index, at.Spec)
	case list == "disks":
		if volume := undiskedVolume(s, index-len(s.Domain.Devices.Disks)); volume >= 0 {
			return at.Spec.Child("volumes").Index(volume)
		}
	case list == "networks" && slices.Contains([]string{"user.cidr", "pod.cidr", "pod.ipv6Cidr", "pod.fallback.cidr"}, rest) && index < len(s.Domain.Devices.Interfaces):
		return cidrField(s, index, rest, at.Spec)
	case list == "networks" && rest == "pod.queues":
		return devices.Child("networkInterfaceMultiqueue")
	case list == "networks" && index < len(s.Domain.Devices.Interfaces):
		return interfaceField(rest, devices.Child("interfaces").Index(index))
	case list == "cpu.features" && s.Domain.CPU != nil && index < len(s.Domain.CPU.Features):
		return domain.Child("cpu", "features").Index(index)
	case name == "devices.guestAgent" && agentField(s, at.Spec) != nil:
		return agentField(s, at.Spec)
	case list == "devices.inputs" && index < len(s.Domain.Devices.Inputs):
		return devices.Child("inputs").Index(index)
	}
	firmware := domain.Child("firmware")
	for _, row := range []struct {
		prefix string
		path   *field.Path
	}{
		{"vmm", at.Annotations.Key(contract.AnnotationVMM)},
		{"hypervisor", at.Annotations.Key(contract.AnnotationHypervisor)},
		{"machineType", domain.Child("machine", "type")},
		{"cpu.model", domain.Child("cpu", "model")},
		{"cpu.features", domain.Child("cpu", "features")},
		{"memory.hugePages", domain.Child("memory", "hugepages", "pageSize")},
		{"cpu.dedicated", domain.Child("cpu", "dedicatedCpuPlacement")},
		{"numa", domain.Child("cpu", "numa", "guestMappingPassthrough")},
		{"cpu", domain.Child("cpu")},
		{"memory", domain.Child("memory", "guest")},
		{"boot.kernel.cmdline", firmware.Child("kernelBoot", "kernelArgs")},
		{"boot.kernel.path", firmware.Child("kernelBoot", "container", "kernelPath")},
		{"boot.kernel.initrd", firmware.Child("kernelBoot", "container", "initrdPath")},
		{"boot.kernel", firmware.Child("kernelBoot")},
		{"boot.firmware", firmware.Child("bootloader")},
		{"boot", firmware},
		{"features.kvmHidden", domain.Child("features", "kvm", "hidden")},
		{"features.pvSpinlock", domain.Child("features", "pvspinlock")},
		{"features.hyperv.passthrough", domain.Child("features", "hypervPassthrough")},
		{"features.hyperv", domain.Child("features", "hyperv")},
		{"features", domain.Child("features")},
		{"clock.timezone", domain.Child("clock", "timezone")},
		{"clock.offsetSeconds", domain.Child("clock", "utc", "offsetSeconds")},
		{"clock", domain.Child("clock", "timer")},
		{"system.assetTag", domain.Child("chassis", "asset")},
		{"system", firmware},
		{"onReboot", domain.Child("rebootPolicy")},
		{"disks", devices.Child("disks")},
		{"networks", devices.Child("interfaces")},
		{"devices.watchdog", devices.Child("watchdog")},
		{"devices.video", devices.Child("video")},
		{"devices.inputs", devices.Child("inputs")},
		{"devices.entropy", devices.Child("rng")},
		{"devices.balloon", devices.Child("autoattachMemBalloon")},
		{"devices", devices},
		{"stopGracePeriod", at.Spec.Child("terminationGracePeriodSeconds")},
	} {
		if rest, is := strings.CutPrefix(name, row.prefix); is && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return row.path
		}
	}
	return at.Spec
}

// undiskedVolume is the index of the nth volume that no disk names, for which the defaults
// make one; -1: there are fewer.
func undiskedVolume(s *kubevirtv1.VirtualMachineInstanceSpec, n int) int {
	for i, v := range s.Volumes {
		if slices.ContainsFunc(s.Domain.Devices.Disks, func(d kubevirtv1.Disk) bool { return d.Name == v.Name }) {
			continue
		}
		if n == 0 {
			return i
		}
		n--
	}
	return -1
}

// diskField is of a disk's own fields, or its volume, which is where its file comes from.
func diskField(name string, s *kubevirtv1.VirtualMachineInstanceSpec, index int, spec *field.Path) *field.Path {
	d, at := &s.Domain.Devices.Disks[index], spec.Child("domain", "devices", "disks").Index(index)
	target := "disk"
	if d.CDROM != nil {
		target = "cdrom"
	}
	switch name {
	case "bus":
		return at.Child(target, "bus")
	case "readOnly":
		return at.Child(target, "readonly")
	case "name", "serial", "bootOrder", "cache", "io", "errorPolicy", "shareable":
		return at.Child(name)
	}
	if part, _, _ := strings.Cut(name, "["); slices.Contains([]string{"path", "format", "backingFiles"}, part) {
		if volume := slices.IndexFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name }); volume >= 0 {
			return spec.Child("volumes").Index(volume)
		}
	}
	return at
}

// cidrField is of the network that an interface is on.
func cidrField(s *kubevirtv1.VirtualMachineInstanceSpec, index int, cidr string, spec *field.Path) *field.Path {
	child := "vmNetworkCIDR"
	if strings.HasSuffix(cidr, "ipv6Cidr") {
		child = "vmIPv6NetworkCIDR"
	}
	name := s.Domain.Devices.Interfaces[index].Name
	if network := slices.IndexFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Name == name }); network >= 0 {
		return spec.Child("networks").Index(network).Child("pod", child)
	}
	return spec.Child("domain", "devices", "interfaces").Index(index)
}

func interfaceField(name string, at *field.Path) *field.Path {
	switch {
	case name == "mac":
		return at.Child("macAddress")
	case name == "name" || name == "model" || name == "bootOrder":
		return at.Child(name)
	case name == "pod.binding":
		return at.Child("bridge")
	case name == "pod.linkDown":
		return at.Child("state")
	case strings.HasSuffix(name, ".bootFile"):
		return at.Child("dhcpOptions", "bootFileName")
	case strings.HasSuffix(name, ".tftpServer"):
		return at.Child("dhcpOptions", "tftpServerName")
	case strings.HasPrefix(name, "pod.dhcp.ntpServers"):
		return at.Child("dhcpOptions", "ntpServers")
	case strings.HasPrefix(name, "pod.dhcp.private"):
		return at.Child("dhcpOptions", "privateOptions")
	case strings.Contains(name, ".ports"):
		return at.Child("ports")
	}
	return at
}

// indexed splits a path of a specification into a list: its name, an index, and what
// follows. The name of a path into none is empty.
func indexed(name string) (list string, index int, rest string) {
	list, rest, _ = strings.Cut(name, "[")
	number, rest, found := strings.Cut(rest, "]")
	index, err := strconv.Atoi(number)
	if !found || err != nil || index < 0 {
		return "", 0, ""
	}
	return list, index, strings.TrimPrefix(rest, ".")
}
