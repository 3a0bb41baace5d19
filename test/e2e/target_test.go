package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	hv "github.com/vmlet/vmlet/hypervisor"
	kvm "github.com/vmlet/vmlet/hypervisor/kvm/probe"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
)

// target is a VMM under a hypervisor, as this machine has them.
type target struct {
	name       string
	vmm        string
	hypervisor string
	// options give a node the program.
	options nodeOptions
	// crawls: the hypervisor emulates each of the guest's instructions, a hundred
	// times slower than QEMU does it.
	crawls bool
	// firmware: much of it runs before the guest does.
	firmware bool
	// driver: vmlet speaks to it by the driver protocol.
	driver bool
	// words are the VMM's own for its events that cases look for.
	words words
	// foreign are claims in a manifest that this VMM doesn't take.
	foreign map[string]damage
}

// words are types of events.
type words struct{ paused, reset string }

// targets are all that this machine has; in short mode the newest program of each
// VMM under one hypervisor.
func targets(t *testing.T) []target {
	t.Helper()
	under := hypervisors(t)
	if testing.Short() {
		under = under[len(under)-1:]
	}
	all := ofQEMU(t, under)
	if slices.Contains(under, "kvm") {
		all = append(all, ofCloudHypervisor(t))
	}
	return append(all, byDriver(t))
}

// byDriver is the newest QEMU behind the driver protocol, under emulation: the driver is asked
// by a user without rights, who may not open /dev/kvm on every machine.
func byDriver(t *testing.T) target {
	t.Helper()
	g := ofQEMU(t, []string{"emulation"})
	last := g[len(g)-1]
	program := filepath.Join(bin, "driver")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "github.com/vmlet/vmlet/test/driver")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the driver: %v: %s", err, out)
	}
	last.name, last.driver = last.name+" by the driver protocol", true
	last.options.config = fmt.Sprintf("drivers: [{name: qemu, program: %s, args: [qemu, %s]}]\n", program, last.options.qemu.binary)
	return last
}

func ofQEMU(t *testing.T, hypervisors []string) []target {
	t.Helper()
	var all []target
	for _, q := range qemusOrSkip(t) {
		for _, h := range hypervisors {
			all = append(all, target{
				name: fmt.Sprintf("qemu %s under %s", q.name, h), vmm: "qemu", hypervisor: h,
				options: nodeOptions{qemu: q},
				crawls:  crawls(t, h), firmware: true,
				words:   words{paused: "STOP", reset: "RESET"},
				foreign: foreignToQEMU(),
			})
		}
	}
	return all
}

// ofCloudHypervisor is the installed one, else its stand-in, whose guest is made up.
func ofCloudHypervisor(t *testing.T) target {
	t.Helper()
	g := target{
		name: "cloud-hypervisor under kvm", vmm: "cloud-hypervisor", hypervisor: "kvm", crawls: crawls(t, "kvm"),
		words: words{paused: "vm/paused", reset: "vm/rebooted"},
		foreign: map[string]damage{
			"another VMM's": {do: claim("qemu", "vmm", "name"), code: codes.FailedPrecondition, words: []string{"qemu"}},
		},
	}
	program, err := exec.LookPath("cloud-hypervisor")
	if err != nil {
		g.name, g.crawls = "cloud-hypervisor's stand-in", false
		t.Logf("%s is tried, and not the real one: %v", g.name, err)
		program, err = chtest.Build(t.Context(), bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.options.config = fmt.Sprintf("cloudHypervisor: {binary: %s}\n", program)
	return g
}

// crawls says whether a hypervisor works, but not as it is meant to.
func crawls(t *testing.T, hypervisor string) bool {
	return hypervisor == "kvm" && kvm.KVM{}.Check(t.Context()).Level == hv.Degraded
}

func foreignToQEMU() map[string]damage {
	return map[string]damage{
		"another VMM's":        {do: claim("cloud-hypervisor", "vmm", "name"), code: codes.FailedPrecondition, words: []string{"cloud-hypervisor"}},
		"unknown machine type": {do: claim("pc-q35-99.1", "machineType"), code: codes.FailedPrecondition, words: []string{"machine type", "pc-q35-99.1"}},
		"unknown CPU model":    {do: claim("Zilog-Z80", "cpu", "model"), code: codes.FailedPrecondition, words: []string{"CPU model", "Zilog-Z80"}},
		"unknown CPU feature":  {do: claim([]string{"warp-drive"}, "cpu", "features"), code: codes.FailedPrecondition, words: []string{"warp-drive"}},
	}
}

// pattern is memory that the guest touches, and checks as much of as it can within
// a second or two.
func (g target) pattern(mib uint32) guest.Pattern {
	p := guest.Pattern{Address: 16 << 20, MiB: mib, Seed: 0x5eed, Words: 256}
	if g.crawls {
		p.Words = 1
	}
	return p
}

// suite is a target's node, with the test that has it just now.
type suite struct {
	*node
	target
}

// spec is a tiny guest's. It has room for the pattern.
func (s *suite) spec(name string, o guest.PVHOptions) *specv1.VirtualMachineSpec {
	s.t.Helper()
	spec := pvh(s.t, name, s.hypervisor, o)
	spec.Vmm = s.vmm
	if o.Memory.MiB > 0 {
		spec.Memory.Size = fmt.Sprintf("%dMi", o.Memory.MiB+128)
	}
	return spec
}

// boots starts a tiny guest and waits until it counts.
func (s *suite) boots(name string, o guest.PVHOptions) *vm {
	s.t.Helper()
	v := s.boot(s.spec(name, o))
	v.count()
	return v
}

// image is where a new image goes.
func (s *suite) image() string {
	s.t.Helper()
	return filepath.Join(s.t.TempDir(), "image")
}

// lazy says whether it can map an image.
func (s *suite) lazy() bool {
	s.t.Helper()
	return s.mapsImages(s.vmm)
}

// mapsImages says whether a VMM of the node can map an image.
func (n *node) mapsImages(vmm string) bool {
	n.t.Helper()
	r, err := n.api.GetNode(n.ctx, &nodev1.GetNodeRequest{})
	n.must(err)
	return slices.ContainsFunc(r.GetVmms(), func(v *nodev1.Vmm) bool { return v.GetName() == vmm && v.GetLazyRestore() })
}
