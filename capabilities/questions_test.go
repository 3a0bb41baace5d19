package capabilities

import (
	"errors"
	"fmt"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"golang.org/x/sys/unix"
)

func TestAnswers(t *testing.T) {
	m := newMachine(t)
	a := Answers{m.collect(m.sources())}
	text := func(v any, err error) string {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(v)
	}
	names := func(models []*capabilitiesv1.CpuModel, err error) string {
		var out []string
		for _, m := range models {
			out = append(out, m.GetName())
		}
		return text(out, err)
	}
	tsc := func(i *capabilitiesv1.TscInfo, err error) string {
		return text(fmt.Sprint(i.GetFrequencyHz(), i.GetScalable()), err)
	}
	for _, c := range []struct{ question, got, want string }{
		{"Hyper-V", text(a.HypervFeatures("")), "[base vpindex]"},
		{"Hyper-V under emulation", text(a.HypervFeatures("emulation")), "[]"},
		{"TSC", tsc(a.TSC("kvm")), "2400000000 true"},
		{"TSC under emulation", tsc(a.TSC("emulation")), "0 false"},
		{"models, without the obsolete", names(a.CPUModels("", "")), "[Cascadelake-Server Skylake-Client]"},
		{"features", text(a.CPUFeatures("auto", "auto")), "[aes vmx]"},
		{"no such hypervisor", text(a.CPUFeatures("xen", "")), `this node has no hypervisor "xen": there are kvm, emulation`},
		{"no such VMM", text(a.CPUFeatures("", "bhyve")), `this node has no VMM "bhyve": there are qemu`},
		{"no host model", text(a.HostCPUModel("emulation", "")), "vmms.qemu.accelerators.emulation.hostCpuModel is not known: the VMM doesn't tell it"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", c.question, c.got)
		}
	}
	if types, err := a.MachineTypes(""); err != nil || types[0].GetAlias() != "q35" {
		t.Errorf("machine types %v (%v)", types, err)
	}
	if host, err := a.HostCPUModel("", ""); err != nil || host.GetName() != "Skylake-Client" {
		t.Errorf("the host model %v (%v)", host, err)
	}
	if sev, err := a.Confidential(); err != nil || sev.GetSev().GetSupported() {
		t.Errorf("SEV %v (%v)", sev, err)
	}
}

// TestNotAsked: what is there and could not be asked is no empty answer.
func TestNotAsked(t *testing.T) {
	m := newMachine(t)
	m.kvm.missing = []*capabilitiesv1.UnknownFact{{Fact: "hypervisors.kvm.tsc", Reason: "EMFILE"}}
	m.kvm.more.Tsc = nil
	m.qemu.err = errors.New("it crashed")
	tsc := func() error { _, err := (Answers{m.collect(m.sources())}).TSC("kvm"); return err }
	hyperv := func() error { _, err := (Answers{m.collect(m.sources())}).HypervFeatures("kvm"); return err }
	machines := func() error { _, err := (Answers{m.collect(m.sources())}).MachineTypes(""); return err }
	var notAsked *NotAskedError
	if err := tsc(); !errors.As(err, &notAsked) || notAsked.Fact != "hypervisors.kvm.tsc" || notAsked.Reason != "EMFILE" {
		t.Errorf("the TSC: %v", err)
	}
	if err := hyperv(); err != nil {
		t.Errorf("Hyper-V, which was asked: %v", err)
	}
	if err := machines(); !errors.As(err, &notAsked) || notAsked.Fact != "vmms.qemu" {
		t.Errorf("machine types: %v", err)
	}
	m.kvm.set(refused(unix.EACCES))
	m.write("dev/kvm", "")
	if err := hyperv(); !errors.As(err, &notAsked) || notAsked.Fact != "hypervisors.kvm" {
		t.Errorf("Hyper-V of what can't be used: %v", err)
	}
	if _, err := (Answers{new(capabilitiesv1.Capabilities)}).Confidential(); !errors.As(err, &notAsked) {
		t.Errorf("of an empty document: %v", err)
	}
	var notHere *NotHereError
	if _, err := (Answers{new(capabilitiesv1.Capabilities)}).MachineTypes(""); !errors.As(err, &notHere) {
		t.Errorf("of an empty document: %v", err)
	}
}
