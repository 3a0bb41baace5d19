package probe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/hypervisor"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/memory"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// programs are those that tests are to go by: the stand-in, and the real one where it
// is installed.
func programs(t *testing.T) map[string]string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds a program")
	}
	standIn, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"stand-in": standIn}
	if real, err := exec.LookPath("cloud-hypervisor"); err == nil {
		out["real"] = real
	} else {
		t.Log("there is no real cloud-hypervisor: ", err)
	}
	return out
}

// nodeWith are the hypervisors of a node with these devices, which are none.
func nodeWith(t testing.TB, devices ...string) []hypervisor.Hypervisor {
	t.Helper()
	dir := t.TempDir()
	for _, name := range devices {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return hypervisors.Hypervisors(sysfs.Roots{Dev: dir}).All()
}

// reasonsOf are those of the capabilities document.
func reasonsOf(info vmm.Info) map[string]string {
	out := map[string]string{}
	for _, a := range info.Capabilities.GetAccelerators() {
		if out[a.GetHypervisor()] = a.GetReason(); a.GetUsable() {
			out[a.GetHypervisor()] = "usable"
		}
	}
	return out
}

func TestTryPrograms(t *testing.T) {
	for name, program := range programs(t) {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			config := Config{Binary: program, Architecture: "amd64", Hypervisors: nodeWith(t, "kvm", "mshv")}
			if name == "real" {
				if _, err := os.Stat("/dev/kvm"); err != nil {
					t.Skip(err)
				}
				config.Hypervisors = hypervisors.Hypervisors(sysfs.Roots{}).All()
			}
			info, err := New(config).Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			reasons := reasonsOf(info)
			if reasons["kvm"] != "usable" || reasons["mshv"] == "usable" || !strings.Contains(reasons["emulation"], "QEMU does") || info.Passing {
				t.Errorf("%v, passing %t", reasons, info.Passing)
			}
			c := info.Capabilities
			if !slices.Contains(c.GetBuiltAccelerators(), "kvm") {
				t.Errorf("%v", c)
			}
			if name == "real" && strings.Contains(c.GetReason(), "GetNestedState") {
				t.Log("this machine's KVM is not enough for saving: ", c.GetReason())
			} else if !info.LazyRestore || !c.GetLazyRestore() || !slices.Equal(c.GetSnapshotKinds(), []string{"eager", "lazy", "stream"}) || c.GetReason() != "" {
				t.Errorf("%v", c)
			}
			for _, feature := range []string{cloudhypervisor.FeatureSocket, cloudhypervisor.FeatureEvents, cloudhypervisor.FeatureLandlock, cloudhypervisor.FeatureSeccomp, cloudhypervisor.FeatureRestoreMode} {
				if !slices.Contains(c.GetFeatures(), feature) {
					t.Errorf("no %s in %q", feature, c.GetFeatures())
				}
			}
			if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestTryFailures: why it doesn't run is told, of the hypervisor that it takes.
func TestTryFailures(t *testing.T) {
	const options = `case $1 in --version) echo cloud-hypervisor v53.0.0; exit;; --help) exit;; esac
`
	for _, c := range []struct {
		name, script string
		devices      []string
		of, want     string
		passing      bool
	}{
		{"refused", "printf 'log\\nError: exited with the following chain of errors:\\n  0: Failed\\n  1: Permission denied (os error 13)\\n\\nDebug' >&2; exit 1",
			[]string{"kvm", "mshv"}, "kvm", "Failed: Permission denied (os error 13)", false},
		{"the other is not taken", "exit 1", []string{"kvm", "mshv"}, "mshv", "takes kvm", true},
		{"mshv alone", "echo 'No such device' >&2; exit 1", []string{"mshv"}, "mshv", "No such device", false},
		{"no memory", "echo 'Cannot allocate memory' >&2; exit 1", []string{"kvm"}, "kvm", "Cannot allocate memory", true},
		{"not a word", "exit 7", []string{"kvm"}, "kvm", "hung up", true},
		{"missing", "exit 7", nil, "kvm", "no such file", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			write(t, path, "#!/bin/sh\n"+options+c.script+"\n")
			info, err := New(Config{Binary: path, Hypervisors: nodeWith(t, c.devices...)}).Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if reason := reasonsOf(info)[c.of]; !strings.Contains(reason, c.want) || len(reason) > 2<<10 {
				t.Errorf("%q, want %q", reason, c.want)
			}
			if info.Passing != c.passing {
				t.Errorf("passing: %t", info.Passing)
			}
		})
	}
}

// TestTryVM: a program that starts, and then fails with a VM.
func TestTryVM(t *testing.T) {
	program, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		knobs   chtest.Knobs
		kvm     string // why it isn't usable
		noSave  string
		passing bool
	}{
		{name: "create", knobs: chtest.Knobs{Refuse: map[string][]string{"vm.create": {"no", "never"}}}, kvm: "no: never"},
		{name: "boot", knobs: chtest.Knobs{Refuse: map[string][]string{"vm.boot": {"Invalid argument (os error 22)"}}}, kvm: "Invalid argument"},
		{name: "in use", knobs: chtest.Knobs{Refuse: map[string][]string{"vm.boot": {"Device or resource busy (os error 16)"}}}, kvm: "busy", passing: true},
		{name: "snapshot", knobs: chtest.Knobs{Refuse: map[string][]string{"vm.snapshot": {"GetNestedState"}}}, noSave: "GetNestedState"},
		{name: "restore", knobs: chtest.Knobs{Refuse: map[string][]string{"vm.restore": {"Cannot allocate memory (os error 12)"}}}, noSave: "allocate", passing: true},
		{name: "end", knobs: chtest.Knobs{Die: map[string]chtest.Death{"vm.snapshot": {Words: "oh", Code: 3}}}, noSave: "oh", passing: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.knobs.Write(program); err != nil {
				t.Fatal(err)
			}
			p := New(Config{Binary: program, Architecture: "amd64", Hypervisors: nodeWith(t, "kvm")})
			info, err := p.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			kvm, refused := reasonsOf(info)["kvm"], vmm.Saveable(p, &specv1.VirtualMachineSpec{}).Err()
			if !strings.Contains(kvm, c.kvm) || (kvm == "usable") != (c.kvm == "") || info.Passing != c.passing {
				t.Errorf("%q, passing %t", kvm, info.Passing)
			}
			if (refused == nil) != (c.noSave == "") || refused != nil && !strings.Contains(refused.Error(), c.noSave) {
				t.Errorf("saving is refused with %v", refused)
			}
			kinds, reason := info.Capabilities.GetSnapshotKinds(), info.Capabilities.GetReason()
			if (len(kinds) == 0) != (c.noSave != "") || !strings.Contains(reason, c.noSave) || info.LazyRestore != (c.noSave == "") {
				t.Errorf("%q: %s", kinds, reason)
			}
			if err := p.CheckImage(t.Context(), &memory.Manifest{VMM: memory.VMM{Name: wire.Name, Version: "53.0"}, Accelerator: "kvm"}); (err == nil) != (c.kvm+c.noSave == "") {
				t.Error(err)
			}
		})
	}
}

// TestTryHangs: a program that starts and never answers is given up with its caller.
func TestTryHangs(t *testing.T) {
	dir := t.TempDir()
	path, started := filepath.Join(dir, "hangs"), filepath.Join(dir, "started")
	if err := unix.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, path, "#!/bin/sh\ncase $1 in --version) echo cloud-hypervisor v53.0.0; exit;; --help) exit;; esac\necho $$ >"+started+"\nexec sleep 1000\n")
	ctx, cancel := context.WithCancel(t.Context())
	pid := make(chan string, 1)
	go func() {
		text, _ := os.ReadFile(started) // returns when the program has opened and closed it
		pid <- strings.TrimSpace(string(text))
		cancel()
	}()
	if _, err := New(Config{Binary: path, Hypervisors: nodeWith(t, "kvm")}).Info(ctx); err != context.Canceled {
		t.Error(err)
	}
	if n := <-pid; n == "" {
		t.Error("it was not started")
	} else if _, err := os.Stat("/proc/" + n); err == nil {
		t.Errorf("process %s is there yet", n)
	}
}

// TestAskedAnew: another device, or another machine, is another question.
func TestAskedAnew(t *testing.T) {
	dir, host := t.TempDir(), "one"
	path := filepath.Join(dir, "program")
	write(t, path, "#!/bin/sh\necho $1 >>"+dir+"/log\ncase $1 in --version) echo cloud-hypervisor v53.0.0; exit;; --help) exit;; esac\necho Permission denied >&2; exit 1\n")
	devices := t.TempDir()
	p := New(Config{Binary: path, Hypervisors: hypervisors.Hypervisors(sysfs.Roots{Dev: devices}).All(), HostKey: func() string { return host }})
	asked := func() int {
		if _, err := p.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(dir + "/log")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "--version")
	}
	steps := []struct {
		name   string
		change func() error
	}{
		{"nothing", func() error { return nil }},
		{"device", func() error { return os.WriteFile(filepath.Join(devices, "kvm"), nil, 0o600) }},
		{"host", func() error { host = "two"; return nil }},
		{"forgotten", func() error { p.Forget(); return nil }},
	}
	before := asked()
	for _, s := range steps {
		if err := s.change(); err != nil {
			t.Fatal(err)
		}
		now := asked()
		if again := now > before; again != (s.name != "nothing") {
			t.Errorf("%s: asked %d times, and %d before", s.name, now, before)
		}
		before = now
	}
}
