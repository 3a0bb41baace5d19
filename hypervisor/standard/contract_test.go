package standard_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/standard"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/qemu"
)

func TestDefaultsByHypervisor(t *testing.T) {
	r := standard.Registry()
	for _, c := range []struct{ hypervisor, arch, model, machine, firmware string }{
		{"kvm", "amd64", "host", "q35", "bios"},
		{"kvm", "arm64", "host", "virt", "uefi"},
		{"mshv", "amd64", "host", "q35", "bios"},
		{"emulation", "amd64", "max", "q35", "bios"},
		{"emulation", "arm64", "max", "virt", "uefi"},
	} {
		target := spec.Target{ID: "id", Hypervisor: c.hypervisor, VMM: "qemu", Arch: c.arch, Defaults: new(qemu.QEMU).Defaults(c.arch)}
		s := spec.Default(&specv1.VirtualMachineSpec{Name: "a"}, target, r.Layers())
		if s.GetCpu().GetModel() != c.model || s.GetMachineType() != c.machine || s.GetBoot().GetFirmware() != c.firmware {
			t.Errorf("%s/%s: %v", c.hypervisor, c.arch, s)
		}
		if faults := r.Validate(s, c.arch); faults != nil {
			t.Errorf("%s/%s: its own defaults have faults: %v", c.hypervisor, c.arch, faults)
		}
		mine := spec.Default(&specv1.VirtualMachineSpec{Name: "a", Cpu: &specv1.CPU{Model: "mine"}}, target, r.Layers())
		if mine.GetCpu().GetModel() != "mine" || mine.GetCpu().GetCores() != 1 {
			t.Errorf("%s/%s: what was set became %v", c.hypervisor, c.arch, mine.GetCpu())
		}
	}
}

func TestValidateByHypervisor(t *testing.T) {
	r := standard.Registry()
	for _, c := range []struct{ arch, yaml, want string }{
		// That cloud-hypervisor runs under KVM and MSHV only is its own word: vmm.RunsUnder.
		{"amd64", "hypervisor: emulation\ncpu: {model: host}\nvmm: cloud-hypervisor", "cpu.model"},
		{"amd64", "hypervisor: emulation\ncpu: {model: max, cores: 1024}\nmemory: {hugePages: {pageSize: 2Mi}}\ndevices: {vsock: {cid: 3}}", ""},
		{"amd64", "hypervisor: emulation", ""},
		{"amd64", "hypervisor: auto\ncpu: {model: host}", ""},
		{"amd64", "hypervisor: kvm\nvmm: cloud-hypervisor\ncpu: {model: Nehalem, cores: 1024}", ""},
		{"arm64", "hypervisor: kvm\ncpu: {model: neoverse-n1, cores: 513}", "cpu cpu.model"},
		{"arm64", "hypervisor: kvm\ncpu: {model: max, cores: 512}", ""},
		{"arm64", "hypervisor: emulation\ncpu: {model: neoverse-n1, cores: 513}", ""},
		{"amd64", "hypervisor: mshv\ncpu: {sockets: 2, cores: 129}", "cpu"},
		{"amd64", "hypervisor: mshv\ncpu: {sockets: 2, cores: 128}", ""},
		{"amd64", "hypervisor: xen\ncpu: {model: 'a b'}", "hypervisor cpu.model"},
	} {
		s, err := spec.Parse([]byte("name: a\n"+c.yaml), "test")
		if err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, f := range r.Validate(s, c.arch) {
			fields = append(fields, f.Field)
			if !strings.Contains(f.Message, "want ") && !strings.Contains(f.Message, "at most ") {
				t.Errorf("%q: the fault %v doesn't say what to do", c.yaml, f)
			}
		}
		if got := strings.Join(fields, " "); got != c.want {
			t.Errorf("%s %q: faults of %q, want %q", c.arch, c.yaml, got, c.want)
		}
	}
}

// What a VM can't do without is the hypervisor's own device; all else is optional, and every path is that of a node.
func TestDeviceRequests(t *testing.T) {
	required := map[string][]string{"kvm": {"/dev/kvm"}, "mshv": {"/dev/mshv"}, "emulation": nil}
	for _, h := range standard.Registry().All() {
		var needed, all []string
		for _, d := range h.DeviceRequests() {
			all = append(all, d.Path)
			if !d.Optional {
				needed = append(needed, d.Path)
			}
			// The kernel's devices are offered by their last names: /dev/net/tun is devices.kubevirt.io/tun.
			if name := d.Path[strings.LastIndex(d.Path, "/")+1:]; !strings.HasPrefix(d.Path, "/dev/") || d.Resource != "devices.kubevirt.io/"+name {
				t.Errorf("%s: %+v", h.Name(), d)
			}
		}
		if !slices.Equal(needed, required[h.Name()]) {
			t.Errorf("%s needs %q, want %q", h.Name(), needed, required[h.Name()])
		}
		for _, optional := range []string{"/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock"} {
			if !slices.Contains(all, optional) {
				t.Errorf("%s doesn't ask for %s", h.Name(), optional)
			}
		}
	}
}

// Names as QEMU and cloud-hypervisor give them, and no others.
func TestThreadNames(t *testing.T) {
	for name, suffix := range map[string]string{"kvm": "KVM", "mshv": "MSHV", "emulation": "TCG"} {
		h, _ := standard.Registry().Get(name)
		namer, ok := hypervisor.As[hypervisor.ThreadNamer](h)
		if !ok {
			t.Fatalf("%s names no threads", name)
		}
		pattern, err := regexp.Compile(namer.Threads().VCPU)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			fmt.Sprintf("CPU 0/%s", suffix): true, fmt.Sprintf("CPU 1023/%s", suffix): true, "vcpu12": name != "emulation",
			"CPU 0/XEN": false, "CPU /" + suffix: false, "IO CPU 0/" + suffix: false, "vcpu": false, "vcpu1x": false, "qemu-system-x86": false,
		} {
			if got := pattern.MatchString(text); got != want {
				t.Errorf("%s: %q is a virtual CPU: %v", name, text, got)
			}
		}
	}
}
