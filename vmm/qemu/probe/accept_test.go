package probe

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/swtpm"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// TestRealQEMUAccepts starts every command line that this machine has the devices
// for, and asks the monitor whether the machine is there.
func TestRealQEMUAccepts(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		for _, c := range qemutest.Cases() {
			if c.Unreal || c.Info == "10.0" && !info.LazyRestore {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				r := c.Request(info)
				r.User, r.Paused = nil, true
				if r.Image != nil {
					r.Image.Manifest.MachineType = oldMachine(t, info)
				}
				accepted(t, q, r)
			})
		}
	})
}

// accepted has QEMU make the machine, and complain of nothing.
func accepted(t *testing.T, q *Program, r vmm.PlanRequest) {
	t.Helper()
	ctx := testContext(t)
	p, err := q.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(p.Args, "-S") {
		t.Fatal("a paused machine's command line has no -S")
	}
	m := launch(t, p, resources{files: standIns(t, p)})
	client := m.shim(ctx)
	var status struct{ Status string }
	if err := client.Execute(ctx, "query-status", nil, &status); err != nil {
		t.Fatal(err)
	}
	want := "prelaunch"
	if r.Image != nil {
		want = "inmigrate"
	}
	if status.Status != want {
		t.Errorf("QEMU is in state %q, want %q", status.Status, want)
	}
	if said := m.quit(ctx, client); said != "" {
		t.Errorf("QEMU complained: %s", said)
	}
}

// oldMachine is an earlier version of q35, so that restoring shows whether the
// image's counts or the specification's.
func oldMachine(t *testing.T, info vmm.Info) string {
	for _, m := range slices.Backward(info.Details.(*qemu.Details).Machines) {
		if strings.HasPrefix(m.Name, "pc-q35-") && m.Alias == "" && !m.Deprecated {
			return m.Name
		}
	}
	t.Fatal("this QEMU has no q35 but the latest")
	return ""
}

// standIns makes a file for each that a plan opens by its path.
func standIns(t *testing.T, p *plan.Plan) map[string]string {
	t.Helper()
	dir := t.TempDir()
	made := make(map[string]string)
	for _, f := range p.Files {
		if f.Kind == plan.FileConnect {
			made[f.Path] = swtpm.Start(t)
		}
		if f.Kind != plan.FilePath && f.Kind != plan.FileReceived {
			continue
		}
		name := cmp.Or(f.Path, f.Field)
		path := filepath.Join(dir, filepath.Base(name))
		switch {
		case f.Template != "":
			copyFile(t, f.Template, path)
		case f.Field == "boot.firmware":
			path = f.Path
		case f.Field == "boot.kernel.path":
			kernel, err := guest.PVH(guest.PVHOptions{})
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, kernel)
		case f.Disk != nil && f.Disk.Format == "qcow2":
			if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", path, "1M").CombinedOutput(); err != nil {
				t.Fatalf("qemu-img: %v: %s", err, out)
			}
		default:
			writeFile(t, path, make([]byte, 1<<20))
		}
		made[name] = path
	}
	return made
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, content)
}

// TestBlockGraph asks QEMU itself what it made of caches, backing files and
// read-only disks.
func TestBlockGraph(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		r := qemutest.Case{YAML: `
disks:
- {path: /images/top.qcow2, format: qcow2, cache: unsafe, backingFiles: [{path: /images/base.img}]}
- {path: /images/ro.img, readOnly: true, cache: writethrough}
- {path: /images/direct.img}
`, Change: func(r *vmm.PlanRequest) { r.Paused = true }}.Request(info)
		r.User = nil
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		m := launch(t, p, resources{files: standIns(t, p)})
		client := m.shim(ctx)
		type node struct {
			Name  string `json:"node-name"`
			RO    bool   `json:"ro"`
			Depth int    `json:"backing_file_depth"`
			Cache struct {
				Direct  bool `json:"direct"`
				NoFlush bool `json:"no-flush"`
			} `json:"cache"`
		}
		var nodes []node
		if err := client.Execute(ctx, "query-named-block-nodes", nil, &nodes); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]node)
		for _, n := range nodes {
			got[n.Name] = n
		}
		want := map[string]node{
			"disk0":          {Name: "disk0", Depth: 1},
			"disk0-backing0": {Name: "disk0-backing0", RO: true},
			"disk1":          {Name: "disk1", RO: true},
			"disk2":          {Name: "disk2"},
		}
		for name, w := range want {
			switch name {
			case "disk0", "disk0-backing0":
				w.Cache.NoFlush = true
			case "disk2":
				w.Cache.Direct = true
			}
			if got[name] != w {
				t.Errorf("node %s is %+v, want %+v", name, got[name], w)
			}
		}
	})
}
