package libvirt

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
)

var update = flag.Bool("update", false, "write the table into docs/libvirt-differences.md instead of comparing with it")

// virtTypes are libvirt's words for vmlet's hypervisors.
var virtTypes = map[string]string{"kvm": "kvm", "emulation": "qemu"}

// needLibvirt skips a test where there is none, or one that the table of
// differences isn't about.
func needLibvirt(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: libvirt runs in a mount namespace of its own")
	}
	if name, missing := Missing(); missing {
		t.Skipf("needs libvirt and there is no %s: test/setup bench installs it", name)
	}
}

func (d *Daemon) known(t *testing.T) {
	t.Helper()
	version, err := d.Virsh(t.Context(), "--version")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(version), knownLibvirt+".") {
		t.Skipf("the differences are written down for libvirt %s, and this is %s", knownLibvirt, version)
	}
}

// TestEqualsLibvirt: what vmlet says of a QEMU is what libvirt says of it, but
// for the differences that are written down; and each of those is still one.
func TestEqualsLibvirt(t *testing.T) {
	needLibvirt(t)
	known := differences()
	met := make([]bool, len(known))
	all := programs(t)
	if len(all) == 0 {
		t.Skip("needs a QEMU")
	}
	named := libvirtFeatures(t)
	compared := 0
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			d := p.start(t)
			d.known(t)
			ours := askVMLet(t, p.binary, hypervisors.Hypervisors(sysfs.Roots{}).All()...)
			compare := func(k kind, libvirt, vmlet []string) {
				for _, name := range missing(vmlet, libvirt) {
					explain(t, known, met, k, onlyVMLet, name)
				}
				for _, name := range missing(libvirt, vmlet) {
					explain(t, known, met, k, onlyLibvirt, name)
				}
			}
			if p.modules == "" {
				var machines []string
				for _, m := range ours.GetMachineTypes() {
					machines = append(machines, m.GetName())
					if m.GetAlias() != "" {
						machines = append(machines, m.GetAlias())
					}
				}
				compare(machineType, d.machines(t, p.binary), machines)
			}
			for _, a := range ours.GetAccelerators() {
				t.Run(a.GetHypervisor(), func(t *testing.T) {
					if !a.GetUsable() {
						t.Skipf("QEMU can't use it here: %s", a.GetReason())
					}
					libvirt, vmlet := d.ask(t, p.binary, virtTypes[a.GetHypervisor()]), under(a)
					vmlet.setApart(named)
					for _, k := range kinds() {
						compare(k, libvirt[k], vmlet[k])
					}
					if len(libvirt[cpuModel]) < 40 || len(libvirt[cpuFeature]) < 30 {
						t.Errorf("libvirt says too little to be compared: %v", libvirt)
					}
					compared++
				})
			}
		})
	}
	if compared < 4 {
		return // not all that the table is about was there
	}
	for i, d := range known {
		if !met[i] && !d.someHosts {
			t.Errorf("%v of %s: no such difference any more", d.names, d.only)
		}
	}
}

// TestOwnConfiguration: what the machine's libvirt is to run is unknown to a Daemon, which
// would start it a second time.
func TestOwnConfiguration(t *testing.T) {
	needLibvirt(t)
	d := program{}.start(t)
	for _, list := range []string{"list", "net-list"} {
		names, err := d.Virsh(t.Context(), list, "--all", "--name")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(names)); got != "" {
			t.Errorf("virsh %s: %q, want none", list, got)
		}
	}
}

// explain finds the difference that a fact falls under.
func explain(t *testing.T, known []difference, met []bool, k kind, s side, name string) {
	t.Helper()
	i := slices.IndexFunc(known, func(d difference) bool { return d.explains(k, s, name) })
	if i < 0 {
		t.Errorf("%s %s: only %s has it", k, name, s)
		return
	}
	met[i] = true
}

// missing returns those of a that b hasn't.
func missing(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return slices.Contains(b, name) })
}

// TestDocumentation: what is written down for people is what is tested.
func TestDocumentation(t *testing.T) {
	const file, begin, end = "../../docs/libvirt-differences.md", "<!-- differences -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no table between %q and %q", file, begin, end)
	}
	want := before + begin + table(differences()) + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s has another table: write it with go test ./test/libvirt -run Documentation -update", file)
	}
}
