package validation

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/spec"
)

// differences returns warnings about what is accepted, and is otherwise in the guest than it
// was written.
func differences(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (warnings []string) {
	domain := at.Child("domain")
	if m := s.Domain.Machine; m != nil {
		if known := convert.KnownMachine(m.Type); known != m.Type {
			warnings = append(warnings, fmt.Sprintf("%s: %s is a machine type of Red Hat's QEMU alone: the guest has %s", domain.Child("machine", "type"), short(m.Type), known))
		}
	}
	for i, d := range s.Domain.Devices.Disks {
		if room := spec.SerialRoom(string(diskBus(d))); len(d.Serial) > room && len(d.Serial) <= maxSerial {
			warnings = append(warnings, fmt.Sprintf("%s: the guest sees its first %d characters", domain.Child("devices", "disks").Index(i).Child("serial"), room))
		}
	}
	return append(warnings, ineffective(s, at)...)
}

// ineffective warns of what is accepted and does not do what it seems to.
func ineffective(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (warnings []string) {
	warn := func(at *field.Path, text string) { warnings = append(warnings, at.String()+" "+text) }
	for i, nic := range s.Domain.Devices.Interfaces {
		if nic.Bridge != nil && onPodNetwork(s, nic.Name) {
			warn(at.Child("domain", "devices", "interfaces").Index(i).Child("bridge"), "keeps the guest from being saved, as its address goes with its pod: use masquerade if it is to be")
		}
	}
	if f := s.Domain.Firmware; f != nil && f.KernelBoot != nil {
		if c := f.KernelBoot.Container; c != nil && c.KernelPath == "" && c.InitrdPath != "" {
			warn(at.Child("domain", "firmware", "kernelBoot"), "has no effect without container.kernelPath: the guest boots from its disks")
		}
	}
	for i, v := range s.Volumes {
		for kind, source := range map[string]*kubevirtv1.CloudInitSource{"cloudInitNoCloud": v.CloudInitNoCloud, "cloudInitConfigDrive": v.CloudInitConfigDrive} {
			if source != nil && ignoredUserData(source, kind == "cloudInitConfigDrive") {
				warn(at.Child("volumes").Index(i).Child(kind), "has user data that cloud-init ignores: its first line is neither #cloud-config nor #! with a program, nor another header that cloud-init knows")
			}
		}
	}
	return warnings
}

// ignoredUserData reports whether cloud-init makes nothing of what is written for it (its documentation, user-data
// formats). Ignition, which has JSON, reads config drives, too.
func ignoredUserData(c *kubevirtv1.CloudInitSource, configDrive bool) bool {
	text := []byte(c.UserData)
	if c.UserDataBase64 != "" {
		text, _ = base64.StdEncoding.DecodeString(c.UserDataBase64) // cloudInit has refused what is none
	}
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) { // gzip
		return false
	}
	start := strings.ToLower(string(bytes.TrimSpace(text[:min(len(text), 4<<10)])))
	known := func(header string) bool { return strings.HasPrefix(start, header) }
	switch {
	case start == "", configDrive && known("{"), strings.Contains(start, "mime-version:"):
		return false
	}
	return !slices.ContainsFunc([]string{
		"#cloud-config", "#!", "#include", "#cloud-boothook", "#part-handler", "#upstart-job", "## template:", // also -archive, -once and so on
		"#ps1", "<powershell>", "rem cmd", // cloudbase-init's, of Windows
	}, known)
}

func onPodNetwork(s *kubevirtv1.VirtualMachineInstanceSpec, name string) bool {
	return slices.ContainsFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Name == name && multus.IsDefault(&n) })
}
