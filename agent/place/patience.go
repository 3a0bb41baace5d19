package place

import (
	"fmt"
	"time"
)

const (
	// EndPatience is how long a shim may take to end after its VMM has, beside the time
	// that the guest's memory takes; see PatienceFor.
	EndPatience = 30 * time.Second
	// ShimPatience is how long a shim that was just started may take to say hello:
	// it needs milliseconds, on a machine that swaps a second or two.
	ShimPatience = 30 * time.Second
)

// freeingTime is how long the kernel may take to unmap and free a GiB of guest memory,
// which it does page by page. 0.2 s were measured with tmpfs and pages of 4 KiB on two
// virtual CPUs; the rest is for machines that are slower, or busy.
const freeingTime = time.Second

// PatienceFor is how long to wait for what takes base, and frees so many bytes of guest memory
// as well.
func PatienceFor(base time.Duration, memory uint64) time.Duration {
	const gib = 1 << 30
	return base + time.Duration((memory+gib-1)/gib)*freeingTime
}

// waitFor returns when do has, or with an error when that takes longer. A disk that does not
// answer keeps a goroutine then, and not the caller.
func waitFor(most time.Duration, what string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%s has not been done for %v: does a disk not answer?", what, most)
	}
}
