package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

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
	monitor, err := Connect(t.Context(), func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", server.Path())
	}, nil)
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
	}).Sample(t.Context())
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
		}).Sample(t.Context())
		if err != nil || (s.Guest != nil) != want {
			t.Errorf("updated at %s: %+v, %v", updated, s.Guest, err)
		}
	}
}

func TestSampleOfHostileQEMU(t *testing.T) {
	for name, reply := range map[string]string{
		"another kind of reply": `{"a":1}`, "a number": `1`, "strings": `["x"]`, "stats of another kind": `[{"qdev":"disk0-device","stats":[]}]`,
	} {
		s, err := sampled(t, map[string]string{"query-blockstats": reply}).Sample(t.Context())
		if err == nil {
			t.Errorf("%s: %+v and no error", name, s)
		}
	}
	_, err := sampled(t, map[string]string{"query-blockstats": `["` + strings.Repeat("x", maxMonitorReply) + `"]`}).Sample(t.Context())
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
