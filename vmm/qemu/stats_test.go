package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// TestSampleOfRealQEMU: disks on every bus are told from each other, and the
// guest, which has no driver, says nothing.
func TestSampleOfRealQEMU(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		r := planCase{yaml: kernelBoot + `
disks:
- {path: /images/a.img}
- {path: /images/b.img, bus: scsi}
- {path: /images/c.img, bus: sata}
- {path: /images/d.img, bus: usb}
- {path: /images/e.iso, bus: scsi, type: cdrom, readOnly: true}
cloudInit: {userData: "#cloud-config"}
`, change: func(r *vmm.PlanRequest) { r.Paused = true }}.request(info)
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
			args := map[string]any{"path": balloonPath, "property": statsIntervalSetting}
			if err := shim.Execute(ctx, "qom-get", args, &got); err != nil || got != want {
				t.Errorf("the guest is asked every %d s, %v; want %d", got, err, want)
			}
		}
		interval(statsInterval)
		if err := sampler.Rest(ctx); err != nil {
			t.Error(err)
		}
		interval(0)
		if _, err := sampler.Sample(ctx); err != nil {
			t.Error(err)
		}
		interval(statsInterval)
	})
}

// TestSampleWithoutBalloon of a real QEMU.
func TestSampleWithoutBalloon(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		r := planCase{yaml: small, change: func(r *vmm.PlanRequest) { r.Paused = true }}.request(info)
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

// sampled is a monitor of a QEMU that gives these answers.
func sampled(t *testing.T, answers map[string]string) vmm.Sampler {
	t.Helper()
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "qmp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	answer := func(command string, args qmptest.Args) {
		server.Handle(command, args, func(r *qmptest.Request) {
			text, known := answers[command]
			if !known {
				r.Fail(&qmp.Error{Class: qmp.DeviceNotFound, Desc: "made up"})
				return
			}
			r.Return(json.RawMessage(text))
		})
	}
	answer("query-blockstats", qmptest.Args{})
	answer("query-balloon", qmptest.Args{})
	answer("qom-get", qmptest.Args{"path": qmptest.Str, "property": qmptest.Str})
	answer("qom-set", qmptest.Args{"path": qmptest.Str, "property": qmptest.Str, "value": qmptest.Any})
	monitor, err := New(Config{}).Connect(testContext(t), func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", server.Path())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { monitor.Close() })
	return monitor.(vmm.Sampler)
}

func TestSampleReadsWhatIsThere(t *testing.T) {
	now := time.Now().Unix()
	updated, _ := json.Marshal(now)
	s, err := sampled(t, map[string]string{
		"query-blockstats": `[{"qdev":"/machine/peripheral/disk1-device/virtio-backend","stats":{"rd_operations":7,"rd_bytes":512,"wr_operations":18446744073709551615,
			"wr_bytes":-1,"flush_operations":1.5,"rd_total_time_ns":2000000000,"wr_total_time_ns":"x","flush_total_time_ns":1e3}},
			{"qdev":"seed-device","stats":{"rd_operations":1}}, {"device":"floppy"}, {"qdev":"disk1-device","stats":{"rd_operations":8}},
			{"qdev":"disk0-device","stats":{}}, {"qdev":"disk-1-device"}, {"qdev":"disk99999999-device"}, {"qdev":"disk2000-device"}]`,
		"query-balloon": `{"actual":1048576}`,
		"qom-set":       `{}`,
		"qom-get":       `{"last-update":` + string(updated) + `,"stats":{"stat-total-memory":1000,"stat-free-memory":18446744073709551615,"stat-new":1,"stat-major-faults":0}}`,
	}).Sample(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Disks) != 2 || s.Disks[0].Index != 0 || s.Disks[1].Index != 1 {
		t.Fatalf("disks %+v, want 0 and 1", s.Disks)
	}
	d := s.Disks[1]
	if d.Reads == nil || *d.Reads != 7 || d.ReadBytes == nil || *d.ReadBytes != 512 || d.ReadTime == nil || *d.ReadTime != 2*time.Second {
		t.Errorf("what makes sense is lost: %+v", d)
	}
	if d.Writes != nil || d.WrittenBytes != nil || d.Flushes != nil || d.WriteTime != nil || d.FlushingTime != nil {
		t.Errorf("what makes no sense is kept: %+v", d)
	}
	g := s.Guest
	if s.Balloon == nil || *s.Balloon != 1<<20 || g == nil || g.Updated.Unix() != now || *g.Total != 1000 || g.Free != nil || *g.MajorFaults != 0 || g.MinorFaults != nil {
		t.Errorf("balloon %v, guest %+v", s.Balloon, g)
	}
}

// TestSampleOfStaleGuest: a guest that has hung for long is not quoted.
func TestSampleOfStaleGuest(t *testing.T) {
	for updated, want := range map[string]bool{"0": false, "1000": false, "-5": false, "null": false, `"now"`: false, "9223372036854775807": false} {
		s, err := sampled(t, map[string]string{
			"query-blockstats": "[]", "query-balloon": `{"actual":1}`, "qom-set": "{}",
			"qom-get": `{"last-update":` + updated + `,"stats":{"stat-total-memory":1000}}`,
		}).Sample(testContext(t))
		if err != nil || (s.Guest != nil) != want {
			t.Errorf("updated at %s: %+v, %v", updated, s.Guest, err)
		}
	}
}

func TestSampleOfHostileQEMU(t *testing.T) {
	for name, reply := range map[string]string{
		"another kind of reply": `{"a":1}`, "a number": `1`, "strings": `["x"]`, "stats of another kind": `[{"qdev":"disk0-device","stats":[]}]`,
	} {
		s, err := sampled(t, map[string]string{"query-blockstats": reply}).Sample(testContext(t))
		if err == nil {
			t.Errorf("%s: %+v and no error", name, s)
		}
	}
	_, err := sampled(t, map[string]string{"query-blockstats": `["` + strings.Repeat("x", maxMonitorReply) + `"]`}).Sample(testContext(t))
	if !errors.Is(err, qmp.ErrDisconnected) {
		t.Errorf("a reply of more than %d bytes: %v", maxMonitorReply, err)
	}
}

func FuzzDiskIndex(f *testing.F) {
	f.Add("/machine/peripheral/disk0-device/virtio-backend")
	f.Add("disk12-device")
	f.Fuzz(func(t *testing.T, device string) {
		if i, ok := diskIndex(device); ok && (i < 0 || !strings.Contains(device, "disk")) {
			t.Errorf("%q is disk %d", device, i)
		}
	})
}
