package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/driverkit"
	"github.com/vmlet/vmlet/vmm/remote"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// liar is a driver that answers as it likes.
func liar(t *testing.T, answers map[string]any) *remote.VMM {
	t.Helper()
	v := remote.New(remote.Config{Name: "liar", Driver: plan.Driver{Program: "/usr/libexec/liar"}, Open: func() (*net.UnixConn, func() error, error) {
		own, other := pair(t)
		wire.NewPeer(other, func(_ context.Context, c *wire.Call) (any, []*os.File, error) {
			if a, has := answers[c.Method]; has {
				return a, nil, nil
			}
			if c.Method == "Negotiate" {
				return wire.NegotiateResponse{Version: wire.Version, Features: []string{wire.FeatureDefaults, wire.FeatureValidate, wire.FeaturePlug}}, nil, nil
			}
			return nil, nil, wire.Errorf(wire.CodeInternal, "no")
		})
		return own, nil, nil
	}})
	t.Cleanup(func() { _ = v.Close() })
	return v
}

// asked is a VM with a disk that is written to and one that is not.
func asked() vmm.PlanRequest {
	s := &specv1.VirtualMachineSpec{
		Name: "web-1", Vmm: "liar", Memory: &specv1.Memory{Size: "64Mi"},
		Boot:  &specv1.Boot{Kernel: &specv1.KernelBoot{Path: "/boot/vmlinuz"}},
		Disks: []*specv1.Disk{{Name: "root", Path: "/srv/root.img"}, {Name: "tools", Path: "/srv/tools.iso", ReadOnly: true}},
	}
	return vmm.PlanRequest{
		ID: "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11", Spec: spec.Default(s, spec.Target{Arch: "amd64"}, spec.BaseLayers()), Hypervisor: "emulation",
		User: &plan.User{UID: 1000, GID: 1000}, MemoryPath: "/run/vmlet/ram/web-1", StateDir: "/var/lib/vmlet/vms/web-1", Seed: -1,
	}
}

// TestPlansThatLie: a plan can't have the shim do what the specification doesn't ask for.
func TestPlansThatLie(t *testing.T) {
	sound := func() *plan.Plan {
		return &plan.Plan{Program: "/usr/bin/vmm", Memory: plan.Memory{Size: 64 << 20, Path: "/run/vmlet/ram/web-1"}, Files: []plan.File{
			{Kind: plan.FileMemory}, {Kind: plan.FileConsole}, {Kind: plan.FileListen, Path: "vmm.sock"},
			{Kind: plan.FilePath, Path: "/boot/vmlinuz"}, {Kind: plan.FilePath, Path: "/srv/root.img", DiskName: "root"}, {Kind: plan.FilePath, Path: "/srv/tools.iso", PartOf: "tools"},
			{Kind: plan.FilePath, Path: "/usr/share/firmware.bin"}, {Kind: plan.FilePath, Path: "/var/lib/vmlet/vms/web-1/vars", Write: true, Template: "/usr/share/vars"},
		}}
	}
	file := func(f plan.File) func(*plan.Plan) { return func(p *plan.Plan) { p.Files = append(p.Files, f) } }
	for _, c := range []struct {
		name string
		lie  func(p *plan.Plan)
		want string // empty: it is taken
	}{
		{"sound", func(*plan.Plan) {}, ""},
		{"a file that nobody named", file(plan.File{Kind: plan.FilePath, Path: "/etc/shadow"}), "names no such file"},
		{"by another way", file(plan.File{Kind: plan.FilePath, Path: "/usr/share/../../etc/shadow"}), "no absolute, clean path"},
		{"the kernel, to write to", file(plan.File{Kind: plan.FilePath, Path: "/boot/vmlinuz", Write: true}), "to be written to"},
		{"a disk without its lock", file(plan.File{Kind: plan.FilePath, Path: "/srv/root.img"}), "keep others off"},
		{"another file as a disk", file(plan.File{Kind: plan.FilePath, Path: "/etc/shadow", DiskName: "root", Write: true}), "to be written to"},
		{"a backing file that isn't", file(plan.File{Kind: plan.FilePath, Path: "/srv/root.img", PartOf: "root", Layer: 7}), "keep others off"},
		{"a template of others", file(plan.File{Kind: plan.FilePath, Path: "/var/lib/vmlet/vms/web-1/x", Template: "/etc/shadow"}), "no template"},
		{"a template to somewhere", file(plan.File{Kind: plan.FilePath, Path: "/etc/cron.d/x", Template: "/usr/share/x"}), "no template"},
		{"another VM's folder", file(plan.File{Kind: plan.FilePath, Path: "/var/lib/vmlet/vms/web-10/vars"}), "names no such file"},
		{"somebody's socket", file(plan.File{Kind: plan.FileConnect, Path: "/run/docker.sock"}), "names no such file"},
		{"the shim's socket", file(plan.File{Kind: plan.FileListen, Path: "shim.sock"}), "vmlet's own"},
		{"a socket elsewhere", file(plan.File{Kind: plan.FileListen, Path: "../x"}), "no name of a socket"},
		{"a folder elsewhere", file(plan.File{Kind: plan.FileFolder, Path: "../other"}), "folder"},
		{"a descriptor before the first", file(plan.File{Kind: plan.FileReceived, Index: -1}), "no descriptor"},
		{"an unknown kind", file(plan.File{Kind: "later", Path: "/etc/shadow"}), "no files of that kind"},
		{"more memory", func(p *plan.Plan) { p.Memory.Size = 1 << 40 }, "64"},
		{"memory elsewhere", func(p *plan.Plan) { p.Memory.Path = "/etc/x" }, "is to be at"},
		{"huge pages", func(p *plan.Plan) { p.Memory.PageSize = 1 << 30 }, "huge pages"},
		{"locked memory", func(p *plan.Plan) { p.LockedMemory = 1 << 40 }, "locked memory"},
		{"no program", func(p *plan.Plan) { p.Program = "sh" }, "no absolute"},
		{"a flood of files", func(p *plan.Plan) { p.Files = make([]plan.File, 5000) }, "5000 files"},
		{"a flood of arguments", func(p *plan.Plan) { p.Args = make([]string, 5000) }, "5000 arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sound()
			c.lie(p)
			p.User, p.Name, p.Paused = nil, "another", true // which the agent says
			encoded, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := liar(t, map[string]any{"Plan": wire.PlanResponse{Plan: encoded}}).Plan(asked())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want one that says %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.User == nil || got.User.UID != 1000 || got.Name != "web-1" || got.Paused || got.VMM != "liar" {
				t.Errorf("the plan is %+v, with the driver's word for what is the agent's", got)
			}
			for _, i := range []int{4, 5} {
				f := got.Files[i]
				if f.Disk == nil || f.Write != (i == 4) || f.Field != fmt.Sprintf("disks[%d].path", i-4) {
					t.Errorf("disk %d is %+v, want what the specification says of it", i-4, f)
				}
			}
		})
	}
}

// TestAnswersThatLie: nothing else that a driver says is taken beyond its bounds.
func TestAnswersThatLie(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	many := make([]wire.Fault, 5000)
	v := liar(t, map[string]any{
		"Describe": wire.DescribeResponse{Name: "liar", Version: long, Capabilities: json.RawMessage(`{"later":{"x":1},"features":["a"]}`), MemoryCosts: &wire.MemoryCosts{Base: 1 << 60}},
		"Validate": wire.ValidateResponse{Faults: many},
		"Defaults": wire.DefaultsResponse{Layer: json.RawMessage(`{"boot":{"kernel":{"path":"/etc/shadow"}},"later":1}`)},
	})
	info, err := v.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Version) > 4<<10 {
		t.Errorf("a version of %d bytes", len(info.Version))
	}
	if got := info.Capabilities.GetFeatures(); len(got) != 1 {
		t.Errorf("features are %v: unknown fields must not hide the others", got)
	}
	if c := v.MemoryCosts(); c.Base > 1<<32 {
		t.Errorf("a VM costs %d bytes", c.Base)
	}
	if faults := v.Validate(asked().Spec, "amd64"); len(faults) == 0 || len(faults) > 100 {
		t.Errorf("%d faults", len(faults))
	}
	if d := v.Defaults("amd64"); d.Layer != nil {
		t.Errorf("the defaults name a file: %v", d.Layer)
	}
	if _, err := liar(t, map[string]any{"Describe": wire.DescribeResponse{Name: "qemu"}}).Info(t.Context()); err == nil {
		t.Error("a driver passes for another VMM's")
	}
}

// TestVersions: drivers that are older or newer by a version work as long as there is a
// version that both speak.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		name     string
		versions []int
		works    bool
	}{
		{"the same", []int{1}, true}, {"newer, speaks the last, too", []int{1, 2}, true}, {"newer, has forgotten the last", []int{2}, false}, {"none", []int{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := remote.New(remote.Config{Name: "fake", Open: func() (*net.UnixConn, func() error, error) {
				own, other := pair(t)
				go func() {
					_ = driverkit.Serve(context.Background(), other, driverkit.Stack{Version: "fake driver 9", VMM: &fakeVMM{}, Versions: c.versions})
				}()
				return own, nil, nil
			}})
			defer v.Close()
			_, err := v.Info(t.Context())
			if c.works && err != nil {
				t.Error(err)
			}
			if !c.works && (err == nil || !strings.Contains(err.Error(), "version") || !strings.Contains(err.Error(), "fake driver 9")) {
				t.Errorf("error %v, want one that names the versions and the driver", err)
			}
		})
	}
	if _, err := liar(t, map[string]any{"Negotiate": wire.NegotiateResponse{Version: 7}}).Info(t.Context()); !errors.Is(err, wire.ErrVersion) {
		t.Errorf("a driver that chose a version nobody offered: %v", err)
	}
}

// TestFieldsThatAnOlderDriverDoesNotKnow are refused by their name, not left out.
func TestFieldsThatAnOlderDriverDoesNotKnow(t *testing.T) {
	own, other := pair(t)
	go func() {
		_ = driverkit.Serve(context.Background(), other, driverkit.Stack{Version: "test", VMM: &fakeVMM{}})
	}()
	peer := wire.NewPeer(own, nil)
	defer peer.Close()
	if _, err := peer.Call(t.Context(), "Validate", nil, nil); wire.CodeOf(err) != wire.CodeInvalid {
		t.Errorf("a call before Negotiate: %v", err)
	}
	if _, err := peer.Call(t.Context(), "Negotiate", wire.NegotiateRequest{Versions: []int{1, 2}}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := peer.Call(t.Context(), "Validate", wire.ValidateRequest{Spec: json.RawMessage(`{"name":"a","warpDrive":{"factor":9}}`)}, nil)
	if wire.CodeOf(err) != wire.CodeInvalid || !strings.Contains(err.Error(), "warpDrive") {
		t.Errorf("error %v, want one that names the field", err)
	}
	if _, err := peer.Call(t.Context(), "Later", nil, nil); wire.CodeOf(err) != wire.CodeUnsupported {
		t.Errorf("a method of a later version: %v", err)
	}
	if _, err := peer.Call(t.Context(), "SaveState", nil, nil); wire.CodeOf(err) != wire.CodeInvalid {
		t.Errorf("a save before Start: %v", err)
	}
}

// TestDriverThatEnds: the next question starts it again.
func TestDriverThatEnds(t *testing.T) {
	opened := 0
	v := remote.New(remote.Config{Name: "fake", Open: func() (*net.UnixConn, func() error, error) {
		own, other := pair(t)
		opened++
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_ = driverkit.Serve(ctx, other, driverkit.Stack{Version: "test", VMM: &fakeVMM{}})
		}()
		return own, func() error { cancel(); return nil }, nil
	}})
	defer v.Close()
	for range 2 {
		if _, err := v.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 2 {
		t.Errorf("it was started %d times, want 2", opened)
	}
}
