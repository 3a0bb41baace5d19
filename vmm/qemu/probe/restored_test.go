package probe

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/test/swtpm"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// restored saves a machine, paused, and restores it with the same RAM file; files
// are what the plans open by path, before and after.
func restored(t *testing.T, q *Program, r vmm.PlanRequest, before, after map[string]string) {
	t.Helper()
	ctx := testContext(t)
	r.User, r.Paused = nil, true
	p, err := q.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	source := launch(t, p, resources{files: before})
	saver := source.shim(ctx)
	state := memoryFile(t, 0)
	migrate(t, ctx, saver, "migrate", state)
	if info, err := state.Stat(); err != nil || info.Size() > 8<<20 {
		t.Errorf("the device state has %d bytes: RAM is in it (%v)", info.Size(), err)
	}
	source.quit(ctx, saver)
	if _, err := state.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	manifest, err := q.Manifest(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Image = &vmm.Image{Manifest: &manifest}
	if p, err = q.Plan(r); err != nil {
		t.Fatal(err)
	}
	target := launch(t, p, resources{files: after, memory: source.memory})
	loader := target.shim(ctx)
	migrate(t, ctx, loader, "migrate-incoming", state)
	target.quit(ctx, loader)
}

// TestNUMAIsRestored: RAM stays in its one file, though it has several blocks.
func TestNUMAIsRestored(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		yaml := qemutest.Small + qemutest.NUMA
		if !info.Details.(*qemu.Details).MemoryOffset {
			yaml = qemutest.Small + "cpu: {cores: 2, maxVcpus: 4}\nmemory: {size: 64Mi}\nnuma: {nodes: [{cpus: 0-1, memory: 64Mi}, {cpus: 2-3, memory: 0}]}\n"
		}
		r := qemutest.Case{YAML: yaml}.Request(info)
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		files := standIns(t, p)
		restored(t, q, r, files, files)
	})
}

// TestTPMIsRestored gives a machine with a TPM back to another emulator, which has
// then what the first had: its state is a part of QEMU's.
func TestTPMIsRestored(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		const socket = "/run/swtpm/web-1.sock"
		r := qemutest.Case{YAML: qemutest.Small2("tpm: {socket: " + socket + "}")}.Request(info)
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		before := standIns(t, p)
		after := make(map[string]string)
		for name, path := range before {
			after[name] = path
		}
		after[socket] = swtpm.Start(t)
		restored(t, q, r, before, after)
		first, second := nonvolatile(t, before[socket]), nonvolatile(t, after[socket])
		if len(first) == 0 || !bytes.Equal(first, second) {
			t.Errorf("the emulator has %d bytes of its own, not the %d that the first had", len(second), len(first))
		}
	})
}

// nonvolatile is what an emulator keeps, beside its socket (swtpm_nvstore_dir.c).
func nonvolatile(t *testing.T, socket string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.Dir(socket), "tpm2-00.permall"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
