package probe

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// wrapper is a program that counts its runs, refuses an accelerator, and is a
// QEMU for the rest.
type wrapper struct {
	path, log string
}

func wrap(t *testing.T, binary, refused string) wrapper {
	t.Helper()
	dir := t.TempDir()
	w := wrapper{path: filepath.Join(dir, "qemu"), log: filepath.Join(dir, "log")}
	script := fmt.Sprintf("#!/bin/sh\necho run >>%s\ncase \"$*\" in *\"-accel %s\"*) echo 'invalid accelerator, today' >&2; exit 1;; esac\nexec %s \"$@\"\n", w.log, refused, binary)
	if err := os.WriteFile(w.path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w wrapper) runs(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(w.log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "run")
}

func TestProbeOfRealQEMU(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		d := info.Details.(*qemu.Details)
		emulation := d.Accelerators[spec.HypervisorEmulation]
		if info.Version == "" || d.Arch != spec.ArchAMD64 || emulation.Failure != "" || len(emulation.Models) < 50 ||
			!slices.Contains(emulation.MaxFeatures, "sse2") || slices.Contains(emulation.Known, "migratable") || slices.Contains(emulation.MaxFeatures, "kvm-pv-eoi") {
			t.Errorf("version %q, %s, emulation: %q, %d models, max %q", info.Version, d.Arch, emulation.Failure, len(emulation.Models), emulation.MaxFeatures)
		}
		if len(emulation.Models["Skylake-Server-v4"].Unavailable) == 0 {
			t.Error("emulation can do all of Skylake-Server-v4")
		}
		for _, name := range qemu.UsedDevices(d.Arch) {
			newer := name == spec.NetIGB && strings.HasPrefix(info.Version, "7.") // came with QEMU 8.0
			if _, found := slices.BinarySearch(d.Devices, name); found == newer {
				t.Errorf("devices %q: %s is among them: %t", d.Devices, name, found)
			}
		}
		checkCapabilities(t, info)
		q35, found := d.Machine("q35")
		if !found || !strings.HasPrefix(q35.Name, "pc-q35-") || q35.MaxCPUs < 2 {
			t.Errorf("q35 is %+v", q35)
		}
		// Both came with QEMU 8.2 and 9.0 or thereabouts.
		if newer := !strings.HasPrefix(info.Version, "7."); newer != d.ReadOnlyMemory || newer != slices.Contains(d.DeviceAccelerators, "kvm") || newer != info.LazyRestore || newer != d.MigrateFile || newer != d.MemoryOffset || !d.HostNodes {
			t.Errorf("version %s: %+v", info.Version, struct {
				ROM, File bool
				Device    []string
			}{d.ReadOnlyMemory, d.MigrateFile, d.DeviceAccelerators})
		}
	})
}

// checkCapabilities looks at what is in the node's document.
func checkCapabilities(t *testing.T, info vmm.Info) {
	c := info.Capabilities
	if c.GetState() != capabilitiesv1.State_STATE_WORKS || c.GetVersion() != info.Version || c.GetBinary() != info.Binary || c.GetLazyRestore() != info.LazyRestore ||
		c.GetArchitecture() != spec.ArchAMD64 || !strings.Contains(strings.Join(c.GetMigrationCapabilities(), " "), "x-ignore-shared") ||
		!slices.Equal(c.GetBuiltAccelerators(), []string{"kvm", "tcg"}) || slices.Contains(c.GetSnapshotKinds(), "lazy") != info.LazyRestore {
		t.Errorf("%+v", c)
	}
	machines := map[string]*capabilitiesv1.MachineType{}
	for _, m := range c.GetMachineTypes() {
		machines[m.GetName()], machines[m.GetAlias()] = m, m
		if m.GetSupported() != (qemu.Machine{Name: m.GetName()}).Supported() {
			t.Errorf("machine %v", m)
		}
	}
	if m := machines["q35"]; !m.GetSupported() || !m.GetNuma() || !m.GetHotpluggableCpus() || m.GetMaxVcpus() < 255 || m.GetIsDefault() || m.GetDefaultCpuType() == "" {
		t.Errorf("q35: %v", m)
	}
	if m := machines["microvm"]; !m.GetSupported() || m.GetNuma() {
		t.Errorf("microvm: %v", m)
	}
	if m := machines["isapc"]; m == nil || m.GetSupported() {
		t.Errorf("isapc: %v", m)
	}
	if !machines["pc"].GetIsDefault() {
		t.Errorf("pc: %v", machines["pc"])
	}
	if !slices.ContainsFunc(c.GetAccelerators(), func(a *capabilitiesv1.AcceleratorCapabilities) bool {
		return a.GetHypervisor() == spec.HypervisorEmulation
	}) {
		t.Fatalf("accelerators %v", c.GetAccelerators())
	}
	for _, a := range c.GetAccelerators() {
		if !a.GetUsable() {
			continue
		}
		checkModels(t, a)
	}
}

func checkModels(t *testing.T, a *capabilitiesv1.AcceleratorCapabilities) {
	t.Helper()
	models := map[string]*capabilitiesv1.CpuModel{}
	for _, m := range a.GetCpuModels() {
		models[m.GetName()] = m
		if m.GetUsable() != (len(m.GetUnavailableFeatures()) == 0) || !slices.IsSorted(m.GetUnavailableFeatures()) {
			t.Errorf("%s: %v", a.GetHypervisor(), m)
		}
	}
	if models["host"] != nil || models["max"] != nil || models["base"] != nil {
		t.Error("host, max or base is among the models")
	}
	if m := models["Haswell-noTSX"]; m.GetVendor() != "Intel" || m.GetAliasOf() != "Haswell-v2" || m.GetUsable() {
		t.Errorf("%s: Haswell-noTSX: %v", a.GetHypervisor(), m)
	}
	if m := models["EPYC-v2"]; m.GetVendor() != "AMD" || m.GetAliasOf() != "" {
		t.Errorf("%s: EPYC-v2: %v", a.GetHypervisor(), m)
	}
	if m := models["qemu64-v1"]; m == nil || m.GetVendor() != "" {
		t.Errorf("%s: qemu64-v1: %v", a.GetHypervisor(), m)
	}
	if a.GetHostCpuModel().GetName() == "" || !slices.IsSorted(a.GetCpuFeatures()) || !slices.Contains(a.GetCpuFeatures(), "sse2") {
		t.Errorf("%s: host model %v, features %q", a.GetHypervisor(), a.GetHostCpuModel(), a.GetCpuFeatures())
	}
}

// TestWithoutEmulation: a QEMU that has only a hypervisor says all the same
// what doesn't depend on one.
func TestWithoutEmulation(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		if kvm := info.Details.(*qemu.Details).Accelerators[spec.HypervisorKVM]; kvm.Failure != "" || kvm.Models == nil {
			t.Skipf("needs KVM: %s", kvm.Failure)
		}
		w := wrap(t, q.config.Binary, "tcg")
		only, err := New(Config{Binary: w.path, Hypervisors: qemutest.Hypervisors("")}).Info(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		got, want := only.Details.(*qemu.Details), info.Details.(*qemu.Details)
		if failure := got.Accelerators[spec.HypervisorEmulation].Failure; !strings.Contains(failure, "invalid accelerator, today") {
			t.Errorf("the failure of emulation is %q", failure)
		}
		if encode(t, got.Machines) != encode(t, want.Machines) || encode(t, got.Devices) != encode(t, want.Devices) {
			t.Error("machines or devices differ from those under emulation")
		}
		if m := got.Accelerators[spec.HypervisorKVM].HostModel; m != nil {
			t.Errorf("the host model under KVM is %s, though the models could not be asked for as they are", m.Name)
		}
		for name, m := range got.Accelerators[spec.HypervisorKVM].Models {
			if m.Vendor != "" {
				t.Errorf("%s is said to be %s's, and QEMU shows the host's vendor", name, m.Vendor)
			}
		}
	})
}

func TestNoHypervisor(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, _ vmm.Info) {
		if _, err := New(Config{Binary: q.config.Binary}).Info(testContext(t)); err == nil || !strings.Contains(err.Error(), "no hypervisor") {
			t.Errorf("without hypervisors: %v", err)
		}
	})
}

// BenchmarkProbe is a cold Info: two programs started and asked.
func BenchmarkProbe(b *testing.B) {
	binary, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if _, err := New(Config{Binary: binary, Hypervisors: qemutest.Hypervisors("")}).Info(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAnswersAreKept: the program is run again only when there is a reason.
func TestAnswersAreKept(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, _ vmm.Info) {
		w := wrap(t, q.config.Binary, "kvm")
		dev := t.TempDir()
		device := filepath.Join(dev, "kvm")
		if err := os.WriteFile(device, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		host := "this machine"
		config := Config{Binary: w.path, Hypervisors: qemutest.Hypervisors(dev), HostKey: func() string { return host }, CacheFile: filepath.Join(t.TempDir(), "answers", "qemu.json"), Log: slog.New(slog.DiscardHandler)}
		if err := os.Mkdir(filepath.Dir(config.CacheFile), 0o700); err != nil {
			t.Fatal(err)
		}
		ask := func(q *Program, why string, wantRuns int) *qemu.Details {
			t.Helper()
			info, err := q.Info(testContext(t))
			if err != nil {
				t.Fatalf("%s: %v", why, err)
			}
			if got := w.runs(t); got != wantRuns {
				t.Errorf("%s: %d runs until now, want %d", why, got, wantRuns)
			}
			return info.Details.(*qemu.Details)
		}
		first := New(config)
		d := ask(first, "at first", 2)
		if failure := d.Accelerators["kvm"].Failure; !strings.Contains(failure, "invalid accelerator, today") {
			t.Errorf("the failure of KVM is %q", failure)
		}
		if _, tried := d.Accelerators["mshv"]; tried {
			t.Error("MSHV was tried without a device")
		}
		ask(first, "again", 2)
		if kept := ask(New(config), "after a restart", 2); encode(t, kept) != encode(t, d) {
			t.Error("what was kept differs from what was said")
		}
		if err := os.WriteFile(config.CacheFile, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		ask(New(config), "after damage to the file", 4)
		if err := os.Chtimes(w.path, time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		ask(first, "after an upgrade", 6)
		host = "this machine with another kernel"
		ask(first, "after a new kernel", 8)
		if err := os.Remove(device); err != nil {
			t.Fatal(err)
		}
		ask(first, "after a device has gone", 9)
		if files, err := os.ReadDir(filepath.Dir(config.CacheFile)); err != nil || len(files) != 1 {
			t.Errorf("left behind: %q, %v", files, err)
		}
	})
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNotQEMU(t *testing.T) {
	dir := t.TempDir()
	says := filepath.Join(dir, "says")
	if err := os.WriteFile(says, []byte("#!/bin/sh\necho 'what is this' >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		says:                          "what is this",
		filepath.Join(dir, "missing"): "no such file",
		dir:                           "not a file",
	} {
		_, err := New(Config{Binary: path, Hypervisors: qemutest.Hypervisors(dir)}).Info(testContext(t))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with %q and the path", path, err, want)
		}
	}
}

func TestFirmware(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	write := func(dir int, name, text string) {
		if err := os.WriteFile(filepath.Join(dirs[dir], name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	describe := func(file, features, arch string) string {
		return fmt.Sprintf(`{"interface-types": ["uefi"], "features": [%s],
"mapping": {"device": "flash", "executable": {"filename": "%s", "format": "raw"}, "nvram-template": {"filename": "/vars", "format": "raw"}},
"targets": [{"architecture": "%s", "machines": ["pc-q35-*"]}]}`, features, file, arch)
	}
	write(1, "50-hidden.json", describe("/hidden", "", "x86_64"))
	write(0, "50-hidden.json", "") // the administrator's way to hide it
	write(1, "60-second.json", describe("/second", `"acpi-s3"`, "x86_64"))
	write(0, "55-first.json", describe("/first", "", "x86_64"))
	write(1, "10-secure.json", describe("/secure", `"requires-smm", "secure-boot"`, "x86_64"))
	write(1, "10-arm.json", describe("/arm", "", "aarch64"))
	write(1, "10-relative.json", describe("relative", "", "x86_64"))
	write(1, "10-broken.json", "{")
	q := New(Config{FirmwareDirs: append(dirs, "/nonexistent"), Log: slog.New(slog.DiscardHandler)})
	var got []string
	for _, f := range q.firmware(spec.ArchAMD64) {
		got = append(got, f.Code)
	}
	if !reflect.DeepEqual(got, []string{"/first", "/second"}) {
		t.Errorf("firmware %q", got)
	}
	d := &qemu.Details{Firmware: q.firmware(spec.ArchAMD64)}
	if f, found := d.FirmwareFor("pc-q35-7.2"); !found || f.Code != "/first" || f.Vars != "/vars" {
		t.Errorf("firmware for q35: %+v", f)
	}
	if f, found := d.FirmwareFor("pc-i440fx-7.2"); found {
		t.Errorf("firmware for pc: %+v", f)
	}
}
