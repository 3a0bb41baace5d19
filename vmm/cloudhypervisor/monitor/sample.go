package monitor

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// maxDisks bounds what is kept of an answer; no specification has as many.
const maxDisks = 1024

var _ vmm.Sampler = (*monitor)(nil)

// Sample asks for the state and the counters. Of the time that requests took the VMM
// has an average, which is no counter, and of flushes and the guest's memory nothing.
func (m *monitor) Sample(ctx context.Context) (vmm.Sample, error) {
	var s vmm.Sample
	info, err := m.info(ctx)
	if err != nil {
		return s, err
	}
	if info.Config.Balloon != nil {
		s.Balloon = known(info.MemoryActual)
	}
	if info.State == chapi.StateCreated {
		return s, nil // there is nothing yet that counts
	}
	var counters chapi.Counters
	err = m.short(ctx, func(ctx context.Context) (err error) {
		counters, err = m.client.Counters(ctx)
		return err
	})
	s.Disks = diskSamples(counters)
	return s, err
}

// Rest has nothing to switch off.
func (m *monitor) Rest(context.Context) error { return nil }

// diskSamples are those of the specification's disks, by their index.
func diskSamples(counters chapi.Counters) []vmm.DiskSample {
	var out []vmm.DiskSample
	for id, c := range counters {
		index, ok := diskIndex(id)
		if !ok {
			continue
		}
		out = append(out, vmm.DiskSample{
			Index: index,
			Reads: counter(c, "read_ops"), Writes: counter(c, "write_ops"),
			ReadBytes: counter(c, "read_bytes"), WrittenBytes: counter(c, "write_bytes"),
		})
	}
	slices.SortFunc(out, func(a, b vmm.DiskSample) int { return a.Index - b.Index })
	return out
}

// diskIndex reads a disk's index off its id, which has it in one way only.
func diskIndex(id string) (int, bool) {
	digits, isDisk := strings.CutPrefix(id, wire.DiskPrefix)
	index, err := strconv.Atoi(digits)
	return index, isDisk && err == nil && index >= 0 && index < maxDisks && digits == strconv.Itoa(index)
}

func counter(c map[string]uint64, name string) *uint64 {
	n, there := c[name]
	if !there {
		return nil
	}
	return known(n)
}

// known is nil for what makes no sense as a number of anything; so is
// chapi.Unmeasured.
func known(n uint64) *uint64 {
	if n > math.MaxInt64 {
		return nil
	}
	return &n
}
