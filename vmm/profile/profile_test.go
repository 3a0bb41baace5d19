package profile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/internal/strictyaml"
	"github.com/vmlet/vmlet/vmm/profile"
	vmmstandard "github.com/vmlet/vmlet/vmm/standard"
)

func parse(t *testing.T, text string) (p profile.Profile, faults string) {
	t.Helper()
	if err := strictyaml.Parse([]byte(text), "f", &p); err != nil {
		t.Fatal(err)
	}
	var all []string
	p.Validate(standard.Registry(), vmmstandard.Registry(), func(key, format string, args ...any) {
		all = append(all, key+": "+fmt.Sprintf(format, args...))
	})
	return p, strings.Join(all, "\n")
}

// TestStacks reads profiles of the two stacks that administrators have.
func TestStacks(t *testing.T) {
	known := standard.Registry()
	p, faults := parse(t, `
name: libvirt-qemu-kvm
virtualizationComponents:
  hypervisorDevice: /dev/kvm
  vCpuRegex: ^CPU (\d+)/KVM\n$
  vmmDaemonProcess: virtqemud
  vmmProcessExecutable: qemu-system-x86
  pitPidPrefix: kvm-pit
virtLauncher:
  virtLauncherCapabilities: [NET_BIND_SERVICE]
  virtLauncherImage: example.org/launcher:1
  virtLauncherOverhead: 220Mi
`)
	if faults != "" {
		t.Fatal(faults)
	}
	h, _ := p.Hypervisor(known)
	v, _ := p.VMM(vmmstandard.Registry())
	overhead, said := p.Overhead()
	if h != "kvm" || v != "qemu" || !said || overhead != 220<<20 || *p.Components.PITPIDPrefix != "kvm-pit" {
		t.Errorf("%s, %s, overhead %d", h, v, overhead)
	}
	if notes := fmt.Sprint(p.Notes()); !strings.Contains(notes, "vmmDaemonProcess virtqemud is not used") || !strings.Contains(notes, "pitPidPrefix kvm-pit is not used") {
		t.Errorf("%q", notes)
	}
	p, faults = parse(t, "virtualizationComponents: {hypervisorDevice: /dev/mshv, vmmProcessExecutable: cloud-hyperviso, pitPidPrefix: ''}")
	h, _ = p.Hypervisor(known)
	v, _ = p.VMM(vmmstandard.Registry())
	if faults != "" || h != "mshv" || v != "cloud-hypervisor" || p.Components.PITPIDPrefix == nil || p.Notes() != nil {
		t.Errorf("%s, %s, %s", h, v, faults)
	}
}

// TestEmpty: the zero profile changes nothing.
func TestEmpty(t *testing.T) {
	p, faults := parse(t, "")
	_, h := p.Hypervisor(standard.Registry())
	_, v := p.VMM(vmmstandard.Registry())
	_, o := p.Overhead()
	if faults != "" || h || v || o || p.Components.PITPIDPrefix != nil || p.Notes() != nil {
		t.Errorf("it says something: %s", faults)
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"virtualizationComponents: {hypervisorDevice: /dev/xen}":           "hypervisorDevice: \"/dev/xen\" is the device of no hypervisor that is known: there are /dev/kvm, /dev/mshv",
		"virtualizationComponents: {vCpuRegex: 'CPU ('}":                   "vCpuRegex: error parsing",
		"virtualizationComponents: {vCpuRegex: 'CPU'}":                     "has no group",
		"virtualizationComponents: {vmmProcessExecutable: firecracker}":    "is the program of no VMM",
		"virtualizationComponents: {vmmDaemonProcess: 'a b'}":              "not the name of a program",
		"virtLauncher: {virtLauncherOverhead: much}":                       "virtLauncherOverhead: \"much\" is not a size",
		"virtLauncher: {virtLauncherCapabilities: [NET_RAW, cap_net_raw]}": "\"cap_net_raw\": want names",
		"virtLauncher: {virtLauncherCapabilities: [CAP_NET_RAW]}":          "virtLauncherCapabilities: \"CAP_NET_RAW\": want names",
		"virtLauncher: {virtLauncherCapabilities: [CAP_SYS_ADMIN]}":        "virtLauncherCapabilities: \"CAP_SYS_ADMIN\": want names",
	} {
		if _, faults := parse(t, text); !strings.Contains(faults, want) {
			t.Errorf("%s: %q, want %q in it", text, faults, want)
		}
	}
}
