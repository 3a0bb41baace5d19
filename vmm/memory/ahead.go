package memory

import (
	"context"
	"math"
	"os"
)

// aheadEnough is how many bytes, written by one round, are not worth another: a disk
// takes them in some ten milliseconds.
const aheadEnough = 32 << 20

// CopyAhead copies guest RAM as CopyMemory does, but while the guest runs and goes on
// writing to it. CopyMemory, which has to follow with the guest stopped, then reads and
// compares all of it, at the speed of memory, and writes only what has changed. Nobody
// is asked who has written where: devices and other processes that write to guest
// memory count as the guest does. It goes round as long as each round writes half of
// what the one before has written, or less, and makes that durable; progress is of the
// first round. It keeps 128 bytes for each MiB with data.
func (w *Writer) CopyAhead(ctx context.Context, ram *os.File, size uint64, progress Progress) error {
	c, err := w.begin(ram, size)
	if err != nil {
		return err
	}
	c.ahead = true
	for before := uint64(math.MaxUint64); ; progress = nil {
		written, err := c.run(ctx, w.opts.Workers, progress)
		if err != nil {
			return err
		}
		if written <= aheadEnough || written > before/2 {
			break
		}
		before = written
	}
	return w.memory.Sync()
}
