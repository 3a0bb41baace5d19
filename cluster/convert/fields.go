package convert

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
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
// from: that of the row of the table, but for what belongs to another object of the instance by
// its name. A disk that only its volume names, as defaults are not filled in yet, is the volume.
func InstanceField(name string, s *kubevirtv1.VirtualMachineInstanceSpec, at Place) *field.Path {
	for _, row := range fields.Annotations() {
		if row.Comes(name) > 0 {
			return at.Annotations.Key(row.Path)
		}
	}
	list, index, rest := indexed(name)
	switch {
	case list == "disks" && index >= len(s.Domain.Devices.Disks):
		if volume := undiskedVolume(s, index-len(s.Domain.Devices.Disks)); volume >= 0 {
			return at.Spec.Child("volumes").Index(volume)
		}
	case list == "disks" && ofFile(rest):
		if volume := slices.IndexFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == s.Domain.Devices.Disks[index].Name }); volume >= 0 {
			return at.Spec.Child("volumes").Index(volume)
		}
	case list == "networks" && slices.Contains([]string{"user.cidr", "pod.cidr", "pod.ipv6Cidr", "pod.fallback.cidr"}, rest) && index < len(s.Domain.Devices.Interfaces):
		return cidrField(s, index, rest, at.Spec)
	case name == "devices.guestAgent" && agentField(s, at.Spec) != nil:
		return agentField(s, at.Spec)
	}
	return fields.Of(name, s, at.Spec)
}

// ofFile says whether a field of a disk is about its file, which is its volume's.
func ofFile(name string) bool {
	part, _, _ := strings.Cut(name, "[")
	return slices.Contains([]string{"path", "format", "backingFiles"}, part)
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
