package vmm

import (
	"context"
	"time"
)

// Sampler is a Monitor that can be asked for counters. What is not known is nil,
// never 0. Its methods may be called concurrently.
type Sampler interface {
	// Sample asks the VMM. It switches on what the answer needs of the guest,
	// once; so the first answers may lack it.
	Sample(ctx context.Context) (Sample, error)
	// Rest switches that off again, until the next Sample.
	Rest(ctx context.Context) error
}

// Sample is what a VMM has counted since it was started, and what its guest says
// of its memory.
type Sample struct {
	Disks []DiskSample
	// Balloon is what the guest has of its memory, in bytes.
	Balloon *uint64
	// Guest is nil if its balloon's driver has said nothing yet.
	Guest *GuestMemory
}

// DiskSample is one disk's counters.
type DiskSample struct {
	// Index is the disk's slot; see spec.Slot.
	Index                             int
	Reads, Writes, Flushes            *uint64
	ReadBytes, WrittenBytes           *uint64
	ReadTime, WriteTime, FlushingTime *time.Duration
}

// GuestMemory is what the guest's balloon driver says, as virtio has it ("Memory
// Statistics Tags" in the specification): sizes in bytes, faults as numbers.
type GuestMemory struct {
	// Updated is when it was said.
	Updated                  time.Time
	Total, Free, Available   *uint64
	DiskCaches               *uint64
	SwappedIn, SwappedOut    *uint64
	MajorFaults, MinorFaults *uint64
}
