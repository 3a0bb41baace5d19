package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/test/guest"
)

// The guest of the rows of large.
const (
	largeMemory  = 8 << 30
	largeTouched = 4 << 30
)

// large: a save and an eager restore of much memory, each beside dd that writes or
// reads as many bytes by direct I/O in the same folder, one after the other: the
// disk is the same, and in the same mood.
func (b *bench) large() error {
	b, err := b.tiny(guest.PVHOptions{}, largeMemory)
	if err != nil {
		return err
	}
	b.runs = min(b.runs, 3)
	made, err := b.vmlet("")()
	if err != nil {
		return err
	}
	v := made.(*vmlet)
	defer closeAll([]system{v})
	starts, err := b.starts([]system{v})
	if err != nil {
		return err
	}
	if _, err := b.untilNextByte(v.console(), func() error { return v.boot(b.ctx) }); err != nil {
		return err
	}
	if err := v.touch(largeTouched); err != nil {
		return err
	}
	var t largeTimes
	t.start = starts[0].median()
	for n := -1; n < b.runs; n++ {
		write, read, err := b.dd(v)
		if err != nil {
			return err
		}
		save, whole, restore, err := b.onceWhole(v, n)
		if err != nil {
			return err
		}
		if n >= 0 {
			t.saves, t.wholes, t.restores = append(t.saves, save), append(t.wholes, whole), append(t.restores, restore)
			t.writes, t.reads = append(t.writes, write), append(t.reads, read)
		}
	}
	b.largeRows(&t)
	return nil
}

// largeTimes are those of the rows of large; wholes: until a save's image was whole.
type largeTimes struct {
	start                                  time.Duration
	saves, wholes, restores, writes, reads sample
}

// onceWhole is once, and how long the save took until its image was whole: after that it
// gives the guest's memory back to the kernel, which dd has nothing of.
func (b *bench) onceWhole(v *vmlet, n int) (save, whole, restore time.Duration, err error) {
	to := b.image(v.name(), n)
	defer os.RemoveAll(to)
	whole, err = b.untilNextByte(filepath.Join(to, memory.ManifestName), func() error {
		begin := time.Now()
		err := v.save(b.ctx, to)
		save = time.Since(begin)
		return err
	})
	if err != nil {
		return 0, 0, 0, err
	}
	restore, err = b.untilNextByte(v.console(), func() error { return v.restore(b.ctx, to) })
	return save, whole, restore, err
}

func (b *bench) largeRows(t *largeTimes) {
	what := fmt.Sprintf("%d GiB guest, %d GiB of random pages", largeMemory>>30, largeTouched>>30)
	b.table.row("save, "+what, t.saves.String(), "–", "dd oflag=direct: "+t.writes.String(),
		fmt.Sprintf("%s of dd's; the image whole after %s, %s of dd's", ratio(t.saves, t.writes), t.wholes, ratio(t.wholes, t.writes)))
	less := make(sample, len(t.restores))
	for i, r := range t.restores {
		less[i] = r - t.start
	}
	b.table.row("eager restore until the next byte, "+what, t.restores.String(), "–", "dd iflag=direct: "+t.reads.String(),
		fmt.Sprintf("%s of dd's without a start's %s", ratio(less, t.reads), ms(t.start)))
}

// dd writes the guest's random pages to a file by direct I/O, and reads them again.
// The guest is paused meanwhile: it would take a processor from dd.
func (b *bench) dd(v *vmlet) (write, read time.Duration, err error) {
	if err := v.vmlet(b.ctx, "pause", "bench"); err != nil {
		return 0, 0, err
	}
	ram, err := v.ramFile()
	if err != nil {
		return 0, 0, err
	}
	file, block := filepath.Join(b.work, "dd"), "bs="+strconv.Itoa(ddBlock)
	defer os.Remove(file)
	// conv=fsync, as an image is not there before it is on the disk.
	if write, err = timed(b.ctx, "dd", "if="+ram, "of="+file, block, "oflag=direct", "conv=fsync",
		"skip="+strconv.Itoa(beyondGuest/ddBlock), "count="+strconv.Itoa(largeTouched/ddBlock)); err != nil {
		return 0, 0, err
	}
	if read, err = timed(b.ctx, "dd", "if="+file, "of=/dev/null", block, "iflag=direct"); err != nil {
		return 0, 0, err
	}
	return write, read, v.vmlet(b.ctx, "resume", "bench")
}

// ddBlock is dd's block in bytes.
const ddBlock = 4 << 20

func timed(ctx context.Context, name string, args ...string) (time.Duration, error) {
	begin := time.Now()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return time.Since(begin), nil
}
