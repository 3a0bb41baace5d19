package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

const (
	// statsInterval is how often QEMU asks the guest about its memory, in seconds.
	statsInterval = 10
	// statsBelief is how long the guest's answer is believed.
	statsBelief = 2 * time.Minute

	balloonPath          = "/machine/peripheral/" + wire.BalloonID
	statsProperty        = "guest-stats"
	statsIntervalSetting = "guest-stats-polling-interval"

	// maxDisks bounds what is kept of an answer; no specification has as many.
	maxDisks = 1024
)

// balloon is what a monitor knows of the VM's balloon.
type balloon struct {
	mu sync.Mutex
	// absent: there is none. polled: QEMU asks the guest about its memory.
	absent, polled bool
}

var _ vmm.Sampler = (*monitor)(nil)

// Sample asks for the disks' counters (query-blockstats) and the balloon's.
func (m *monitor) Sample(ctx context.Context) (vmm.Sample, error) {
	var s vmm.Sample
	var devices []blockStats
	if err := m.client.Execute(ctx, "query-blockstats", nil, &devices); err != nil {
		return s, err
	}
	s.Disks = diskSamples(devices)
	err := m.sampleBalloon(ctx, &s)
	return s, err
}

// Rest has QEMU ask the guest no more.
func (m *monitor) Rest(ctx context.Context) error {
	m.balloon.mu.Lock()
	defer m.balloon.mu.Unlock()
	if !m.balloon.polled {
		return nil
	}
	if err := m.setPolling(ctx, 0); err != nil {
		return err
	}
	m.balloon.polled = false
	return nil
}

func (m *monitor) sampleBalloon(ctx context.Context, s *vmm.Sample) error {
	there, err := m.pollGuest(ctx)
	if !there || err != nil {
		return err
	}
	var size struct {
		Actual count `json:"actual"`
	}
	if err := m.client.Execute(ctx, "query-balloon", nil, &size); err != nil {
		return err
	}
	s.Balloon = size.Actual.value
	var stats guestStats
	args := map[string]any{"path": balloonPath, "property": statsProperty}
	if err := m.client.Execute(ctx, "qom-get", args, &stats); err != nil {
		return err
	}
	s.Guest = stats.memory(time.Now())
	return nil
}

// pollGuest has QEMU ask the guest about its memory, unless it does already.
// False: there is no balloon.
func (m *monitor) pollGuest(ctx context.Context) (there bool, err error) {
	m.balloon.mu.Lock()
	defer m.balloon.mu.Unlock()
	if m.balloon.absent || m.balloon.polled {
		return !m.balloon.absent, nil
	}
	err = m.setPolling(ctx, statsInterval)
	if errors.Is(err, qmp.DeviceNotFound) {
		m.balloon.absent = true
		return false, nil
	}
	m.balloon.polled = err == nil
	return err == nil, err
}

func (m *monitor) setPolling(ctx context.Context, seconds int) error {
	args := map[string]any{"path": balloonPath, "property": statsIntervalSetting, "value": seconds}
	return m.client.Execute(ctx, "qom-set", args, nil)
}

// blockStats is what is read of one of query-blockstats' answers (BlockStats in
// qapi/block-core.json).
type blockStats struct {
	// Device that the guest has of it, by its path or id.
	Device string `json:"qdev"`
	Stats  struct {
		Reads        count    `json:"rd_operations"`
		Writes       count    `json:"wr_operations"`
		Flushes      count    `json:"flush_operations"`
		ReadBytes    count    `json:"rd_bytes"`
		WrittenBytes count    `json:"wr_bytes"`
		ReadTime     duration `json:"rd_total_time_ns"`
		WriteTime    duration `json:"wr_total_time_ns"`
		FlushingTime duration `json:"flush_total_time_ns"`
	} `json:"stats"`
}

// diskSamples are those of the specification's disks, by their index, each once.
func diskSamples(devices []blockStats) []vmm.DiskSample {
	var out []vmm.DiskSample
	for _, d := range devices {
		index, ok := diskIndex(d.Device)
		known := func(s vmm.DiskSample) bool { return s.Index == index }
		if !ok || index >= maxDisks || slices.ContainsFunc(out, known) {
			continue
		}
		out = append(out, vmm.DiskSample{
			Index: index,
			Reads: d.Stats.Reads.value, Writes: d.Stats.Writes.value, Flushes: d.Stats.Flushes.value,
			ReadBytes: d.Stats.ReadBytes.value, WrittenBytes: d.Stats.WrittenBytes.value,
			ReadTime: d.Stats.ReadTime.value, WriteTime: d.Stats.WriteTime.value, FlushingTime: d.Stats.FlushingTime.value,
		})
	}
	slices.SortFunc(out, func(a, b vmm.DiskSample) int { return a.Index - b.Index })
	return out
}

// diskIndex reads the index of a disk off what QEMU calls its device: the id that
// the planner (vmm/qemu) gives it, or for virtio-blk the path of a part of that.
func diskIndex(device string) (int, bool) {
	device = strings.TrimPrefix(device, "/machine/peripheral/")
	device = strings.TrimSuffix(device, "/virtio-backend")
	digits, isDisk := strings.CutPrefix(device, "disk")
	digits, isDevice := strings.CutSuffix(digits, "-device")
	index, err := strconv.ParseUint(digits, 10, 16)
	return int(index), isDisk && isDevice && err == nil
}

// guestStats is the balloon's property of that name (balloon_stats_get_all in
// hw/virtio/virtio-balloon.c).
type guestStats struct {
	// Updated is in seconds since 1970; 0: never.
	Updated count `json:"last-update"`
	Stats   struct {
		Total       count `json:"stat-total-memory"`
		Free        count `json:"stat-free-memory"`
		Available   count `json:"stat-available-memory"`
		DiskCaches  count `json:"stat-disk-caches"`
		SwappedIn   count `json:"stat-swap-in"`
		SwappedOut  count `json:"stat-swap-out"`
		MajorFaults count `json:"stat-major-faults"`
		MinorFaults count `json:"stat-minor-faults"`
	} `json:"stats"`
}

// memory is nil if the guest has said nothing, or nothing lately, or the clock was
// put back since.
func (g guestStats) memory(now time.Time) *vmm.GuestMemory {
	if g.Updated.value == nil || *g.Updated.value == 0 {
		return nil
	}
	updated := time.Unix(int64(*g.Updated.value), 0)
	if age := now.Sub(updated); age > statsBelief || age < -statsBelief {
		return nil
	}
	s := g.Stats
	return &vmm.GuestMemory{
		Updated: updated, Total: s.Total.value, Free: s.Free.value, Available: s.Available.value, DiskCaches: s.DiskCaches.value,
		SwappedIn: s.SwappedIn.value, SwappedOut: s.SwappedOut.value, MajorFaults: s.MajorFaults.value, MinorFaults: s.MinorFaults.value,
	}
}

// count is a number that a VMM or its guest has sent, and so may be anything. What
// makes no sense as one is not known; so is 2^64-1, which is how QEMU says that of
// a guest's statistics.
type count struct{ value *uint64 }

// UnmarshalJSON never fails: one odd number is not to cost the others.
func (c *count) UnmarshalJSON(text []byte) error {
	c.value = nil
	if n, err := strconv.ParseUint(string(text), 10, 63); err == nil {
		c.value = &n
	}
	return nil
}

// duration is a count of nanoseconds.
type duration struct{ value *time.Duration }

// UnmarshalJSON never fails; see count.
func (d *duration) UnmarshalJSON(text []byte) error {
	var c count
	d.value = nil
	if err := c.UnmarshalJSON(text); err != nil || c.value == nil {
		return err
	}
	value := time.Duration(*c.value)
	d.value = &value
	return nil
}

var (
	_ json.Unmarshaler = (*count)(nil)
	_ json.Unmarshaler = (*duration)(nil)
)
