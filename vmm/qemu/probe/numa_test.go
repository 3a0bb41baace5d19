package probe

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// TestNUMAOfRealQEMU asks QEMU what it made of the nodes, and sees that a node's
// memory is the part of the one file that the plan says.
func TestNUMAOfRealQEMU(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		if !info.Details.(*qemu.Details).MemoryOffset {
			t.Skip("this QEMU can't divide one file")
		}
		ctx := testContext(t)
		r := qemutest.Case{YAML: qemutest.Small + qemutest.NUMA, Change: func(r *vmm.PlanRequest) { r.User, r.Paused = nil, true }}.Request(info)
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := q.Manifest(r)
		if err != nil {
			t.Fatal(err)
		}
		const node = 1
		if region := manifest.Regions[node]; region.Name != "ram1" || region.Offset != 32<<20 || region.Size != 64<<20 {
			t.Errorf("regions %+v", manifest.Regions)
		}
		ram := memoryFile(t, int64(p.Memory.Size))
		// Far enough above what QEMU loads: guest-physical addresses are offsets here.
		if _, err := ram.WriteAt([]byte{0x78, 0x56, 0x34, 0x12}, 80<<20); err != nil {
			t.Fatal(err)
		}
		client := launch(t, p, resources{files: standIns(t, p), memory: ram}).shim(ctx)
		ask := func(line string) string {
			var reply string
			if err := client.Execute(ctx, "human-monitor-command", map[string]string{"command-line": line}, &reply); err != nil {
				t.Fatal(err)
			}
			return strings.ReplaceAll(reply, "\r", "")
		}
		said := ask("info numa")
		for _, want := range []string{"3 nodes", "node 0 cpus: 0 1\nnode 0 size: 32 MB", "node 1 cpus: 2\nnode 1 size: 64 MB", "node 2 cpus: 3\nnode 2 size: 0 MB"} {
			if !strings.Contains(said, want) {
				t.Errorf("QEMU's nodes are\n%swant %q", said, want)
			}
		}
		if got := ask("xp /1xw 0x5000000"); !strings.Contains(got, "0x12345678") {
			t.Errorf("at 80 MiB the guest has %s", got)
		}
	})
}

// TestPluggableVCPUs asks QEMU which vCPUs there may be.
func TestPluggableVCPUs(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		r := qemutest.Case{YAML: qemutest.Small + "cpu: {sockets: 1, cores: 2, threads: 2, maxVcpus: 12}\n",
			Change: func(r *vmm.PlanRequest) { r.User, r.Paused = nil, true }}.Request(info)
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		var places []struct {
			Path string `json:"qom-path"`
		}
		if err := launch(t, p, resources{files: standIns(t, p)}).shim(ctx).Execute(ctx, "query-hotpluggable-cpus", nil, &places); err != nil {
			t.Fatal(err)
		}
		there := 0
		for _, place := range places {
			if place.Path != "" {
				there++
			}
		}
		if len(places) != 12 || there != 4 {
			t.Errorf("%d places for vCPUs, %d taken: want 12 and 4", len(places), there)
		}
	})
}
