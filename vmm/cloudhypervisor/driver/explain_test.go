package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// TestExplain: the file is named by field and path, and the VMM's words stay.
func TestExplain(t *testing.T) {
	m := &machine{
		link: control.Link{Plan: &plan.Plan{Files: []plan.File{
			{Kind: plan.FilePath, Field: "boot.kernel.path", Path: "/srv/vmlinux"},
			{Kind: plan.FilePath, Field: "disks[0].path", Path: "/srv/a.img"},
			{Kind: plan.FilePath, Field: "disks[1].path", Path: "/srv/b.img"},
		}}},
		vm: &wire.VM{Config: chapi.VMConfig{
			Payload: &chapi.Payload{Kernel: "/proc/self/fd/3"},
			Disks:   []chapi.Disk{{Path: "/proc/self/fd/4"}, {Path: "/proc/self/fd/5"}},
		}},
	}
	locked := func(path string) error {
		return &chapi.Error{Call: "vm.boot", Status: 500, Causes: []string{
			"Cannot lock images of all block devices", "Failed to get Write lock for disk image: " + path, "The file is already locked",
		}}
	}
	oneCause := func(path string) error {
		return &chapi.Error{Call: "vm.boot", Status: 500, Causes: []string{"Failed to get Write lock for disk image: " + path + ": The file is already locked"}}
	}
	kernel := &chapi.Error{Call: "vm.boot", Status: 500, Causes: []string{"The VM could not boot", "Cannot load the kernel into memory"}}
	other := &chapi.Error{Call: "vm.boot", Status: 500, Causes: []string{"The VM could not boot", "out of luck"}}
	for _, tc := range []struct {
		name string
		err  error
		want string // its beginning; empty: the error as it was
	}{
		{"the kernel", kernel, "boot.kernel.path: /srv/vmlinux: want an ELF file"},
		{"a disk, each cause by itself", locked("/proc/self/fd/5"), "disks[1].path: /srv/b.img: another VM"},
		{"a disk, causes in one", oneCause("/proc/self/fd/4"), "disks[0].path: /srv/a.img: another VM"},
		{"no such disk", oneCause("/proc/self/fd/45"), ""},
		{"another refusal", other, ""},
		{"no refusal", chapi.ErrDisconnected, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := m.explain(tc.err)
			if !errors.Is(got, tc.err) || !strings.HasSuffix(got.Error(), tc.err.Error()) {
				t.Errorf("%v does not end with %v", got, tc.err)
			}
			if tc.want == "" && got != tc.err || !strings.HasPrefix(got.Error(), tc.want) {
				t.Errorf("%v, want %s", got, tc.want)
			}
		})
	}
}

// TestFile: what is none of the plan's files keeps its name.
func TestFile(t *testing.T) {
	m := &machine{link: control.Link{Plan: &plan.Plan{Files: []plan.File{{Path: "/srv/fw"}}}}}
	for path, want := range map[string]string{
		"/proc/self/fd/3": "/srv/fw", "/proc/self/fd/2": "/proc/self/fd/2", "/proc/self/fd/4": "/proc/self/fd/4",
		"/proc/self/fd/x": "/proc/self/fd/x", "/srv/disk": "/srv/disk",
	} {
		if got := m.file(path).Path; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
