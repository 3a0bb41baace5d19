package libvirt

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// answer is what libvirt or vmlet says of one QEMU under one hypervisor, as far
// as both do; by kind of fact.
type answer map[kind][]string

// kind of fact.
type kind string

const (
	machineType  kind = "machine type"
	cpuModel     kind = "CPU model"
	usableModel  kind = "usable CPU model"
	modelVendor  kind = "CPU model's vendor"
	hostModel    kind = "host model"
	hostVendor   kind = "host's vendor"
	hostRequires kind = "host model requires"
	hostDisables kind = "host model disables"
	cpuFeature   kind = "CPU feature"
	// namelessFeature is a CPU feature, also one of the host model's, that libvirt has no
	// name for. Which there are depends on the processor.
	namelessFeature kind = "CPU feature that libvirt has no name for"
)

// kinds are all that depend on the accelerator.
func kinds() []kind {
	return []kind{cpuModel, usableModel, modelVendor, hostModel, hostVendor, hostRequires, hostDisables, cpuFeature, namelessFeature}
}

// domainCapabilities is what is read of virsh domcapabilities.
type domainCapabilities struct {
	Modes []struct {
		Name   string `xml:"name,attr"`
		Vendor string `xml:"vendor"`
		Models []struct {
			Name   string `xml:",chardata"`
			Usable string `xml:"usable,attr"`
			Vendor string `xml:"vendor,attr"`
		} `xml:"model"`
		Features []feature `xml:"feature"`
	} `xml:"cpu>mode"`
}

type feature struct {
	Name   string `xml:"name,attr"`
	Policy string `xml:"policy,attr"`
}

// hostCapabilities is what is read of virsh capabilities.
type hostCapabilities struct {
	Guests []struct {
		Arch struct {
			Name     string `xml:"name,attr"`
			Emulator string `xml:"emulator"`
			Machines []struct {
				Name  string `xml:",chardata"`
				Alias string `xml:"canonical,attr"`
			} `xml:"machine"`
		} `xml:"arch"`
	} `xml:"guest"`
}

func (d *Daemon) ask(t *testing.T, emulator, virtType string) answer {
	t.Helper()
	of := []string{"--virttype", virtType, "--arch", "x86_64", "--machine", "q35"}
	text, err := d.Virsh(t.Context(), append([]string{"domcapabilities", "--emulatorbin", emulator}, of...)...)
	if err != nil {
		t.Fatal(err)
	}
	var said domainCapabilities
	if err := xml.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	a := answer{}
	for _, mode := range said.Modes {
		switch mode.Name {
		case "host-model":
			a.add(hostVendor, mode.Vendor)
			for _, m := range mode.Models {
				a.add(hostModel, m.Name)
			}
			a[hostRequires], a[hostDisables] = byPolicy(mode.Features)
		case "custom":
			for _, m := range mode.Models {
				a.add(cpuModel, m.Name)
				if m.Usable == "yes" {
					a.add(usableModel, m.Name)
				}
				if m.Vendor != "unknown" {
					a.add(modelVendor, m.Name+": "+m.Vendor)
				}
			}
		}
	}
	// As KubeVirt has it: the baseline of what the host model is, with all features.
	file := filepath.Join(t.TempDir(), "domcapabilities.xml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err = d.Virsh(t.Context(), append([]string{"hypervisor-cpu-baseline", "--emulator", emulator, "--features", file}, of...)...); err != nil {
		t.Fatal(err)
	}
	var baseline struct {
		Features []feature `xml:"feature"`
	}
	if err := xml.Unmarshal(text, &baseline); err != nil {
		t.Fatal(err)
	}
	a[cpuFeature], _ = byPolicy(baseline.Features)
	a.sort()
	return a
}

// machines are those of the emulator that libvirt finds by itself; none if that
// is another one.
func (d *Daemon) machines(t *testing.T, emulator string) []string {
	t.Helper()
	text, err := d.Virsh(t.Context(), "capabilities")
	if err != nil {
		t.Fatal(err)
	}
	var said hostCapabilities
	if err := xml.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range said.Guests {
		if g.Arch.Name != "x86_64" || g.Arch.Emulator != emulator {
			continue
		}
		for _, m := range g.Arch.Machines {
			out = append(out, m.Name)
		}
	}
	return out
}

func byPolicy(features []feature) (required, disabled []string) {
	for _, f := range features {
		if f.Policy == "disable" {
			disabled = append(disabled, f.Name)
		} else {
			required = append(required, f.Name)
		}
	}
	return required, disabled
}

// askVMLet asks the QEMU as vmlet does.
func askVMLet(t *testing.T, binary string, hypervisors ...hypervisor.Hypervisor) *capabilitiesv1.VmmCapabilities {
	t.Helper()
	q := qemu.New(qemu.Config{Binary: binary, Hypervisors: hypervisors})
	info, err := q.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.Capabilities
}

// under is what vmlet says of a QEMU under one accelerator.
func under(a *capabilitiesv1.AcceleratorCapabilities) answer {
	out := answer{}
	for _, m := range a.GetCpuModels() {
		out.add(cpuModel, m.GetName())
		if m.GetUsable() {
			out.add(usableModel, m.GetName())
		}
		if m.GetVendor() != "" {
			out.add(modelVendor, m.GetName()+": "+m.GetVendor())
		}
	}
	h := a.GetHostCpuModel()
	out.add(hostModel, h.GetName())
	out.add(hostVendor, h.GetVendor())
	out[hostRequires], out[hostDisables] = h.GetRequiredFeatures(), h.GetDisabledFeatures()
	out[cpuFeature] = a.GetCpuFeatures()
	out.sort()
	return out
}

// libvirtFeatures are the CPU features that the installed libvirt has names for.
func libvirtFeatures(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/usr/share/libvirt/cpu_map/x86_features.xml")
	if err != nil {
		t.Fatal(err)
	}
	var features struct {
		Features []feature `xml:"feature"`
	}
	if err := xml.Unmarshal(text, &features); err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(features.Features))
	for i, f := range features.Features {
		names[i] = f.Name
	}
	return names
}

// setApart moves the features that aren't among the named ones to a kind of their own.
func (a answer) setApart(named []string) {
	for _, k := range []kind{hostRequires, hostDisables, cpuFeature} {
		nameless := missing(a[k], named)
		a[k] = missing(a[k], nameless)
		a[namelessFeature] = append(a[namelessFeature], nameless...)
	}
}

func (a answer) add(k kind, name string) { a[k] = append(a[k], name) }

func (a answer) sort() {
	for _, names := range a {
		slices.Sort(names)
	}
}

// program is a QEMU to compare with.
type program struct {
	name, binary string
	// modules is the folder of its modules where it isn't the machine's own: a
	// QEMU that is asked for all its types loads those of its own build only.
	modules string
}

func programs(t *testing.T) []program {
	t.Helper()
	var out []program
	if binary, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		out = append(out, program{name: "the machine's QEMU", binary: binary})
	}
	if newer, err := guest.QEMU10(); err == nil {
		real, err := filepath.EvalSymlinks(newer)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, program{name: "QEMU 10", binary: newer, modules: filepath.Join(filepath.Dir(real), modulesFolder)})
	}
	return out
}

const modulesFolder = "/usr/lib/x86_64-linux-gnu/qemu"

// start starts a libvirt for a QEMU.
func (p program) start(t *testing.T) *Daemon {
	t.Helper()
	instead := map[string]string{}
	if p.modules != "" {
		instead[modulesFolder] = p.modules
	}
	d, err := Start(t.Context(), t.TempDir(), instead)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}
