package probe

import (
	"slices"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// TestSampleOfRealQEMU: disks on every bus are told from each other, and the
// guest, which has no driver, says nothing.
func TestSampleOfRealQEMU(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		r := qemutest.Case{YAML: qemutest.KernelBoot + `
disks:
- {path: /images/a.img}
- {path: /images/b.img, bus: scsi}
- {path: /images/c.img, bus: sata}
- {path: /images/d.img, bus: usb}
- {path: /images/e.iso, bus: scsi, type: cdrom, readOnly: true}
cloudInit: {userData: "#cloud-config"}
`, Change: func(r *vmm.PlanRequest) { r.Paused = true }}.Request(info)
		r.User = nil
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		m := launch(t, p, resources{files: standIns(t, p)})
		monitor, err := q.Connect(ctx, m.dial)
		if err != nil {
			t.Fatal(err)
		}
		defer monitor.Close()
		sampler := monitor.(vmm.Sampler)
		for range 2 { // the second does not switch anything on again
			s, err := sampler.Sample(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var indexes []int
			for _, d := range s.Disks {
				indexes = append(indexes, d.Index)
				if d.Reads == nil || d.Writes == nil || d.Flushes == nil || d.ReadBytes == nil || d.WrittenBytes == nil ||
					d.ReadTime == nil || d.WriteTime == nil || d.FlushingTime == nil {
					t.Errorf("disk %d lacks a counter: %+v", d.Index, d)
				}
			}
			if want := []int{0, 1, 2, 3, 4}; !slices.Equal(indexes, want) {
				t.Errorf("disks %v, want %v", indexes, want)
			}
			if s.Balloon == nil || *s.Balloon != p.Memory.Size {
				t.Errorf("the balloon leaves %v bytes, want %d", s.Balloon, p.Memory.Size)
			}
			if s.Guest != nil {
				t.Errorf("a guest without a driver said %+v", s.Guest)
			}
		}
		shim := m.shim(ctx)
		interval := func(want int) {
			t.Helper()
			var got int
			args := map[string]any{"path": "/machine/peripheral/" + wire.BalloonID, "property": "guest-stats-polling-interval"}
			if err := shim.Execute(ctx, "qom-get", args, &got); err != nil || got != want {
				t.Errorf("the guest is asked every %d s, %v; want %d", got, err, want)
			}
		}
		interval(10)
		if err := sampler.Rest(ctx); err != nil {
			t.Error(err)
		}
		interval(0)
		if _, err := sampler.Sample(ctx); err != nil {
			t.Error(err)
		}
		interval(10)
	})
}

// TestSampleWithoutBalloon of a real QEMU.
func TestSampleWithoutBalloon(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		r := qemutest.Case{YAML: qemutest.Small, Change: func(r *vmm.PlanRequest) { r.Paused = true }}.Request(info)
		r.User = nil
		p, err := q.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		m := launch(t, p, resources{files: standIns(t, p)})
		monitor, err := q.Connect(testContext(t), m.dial)
		if err != nil {
			t.Fatal(err)
		}
		defer monitor.Close()
		s, err := monitor.(vmm.Sampler).Sample(testContext(t))
		if err != nil || len(s.Disks) != 0 || s.Balloon != nil || s.Guest != nil {
			t.Errorf("%+v, %v; want nothing", s, err)
		}
		if err := monitor.(vmm.Sampler).Rest(testContext(t)); err != nil {
			t.Error(err)
		}
	})
}
