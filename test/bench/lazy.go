package main

import (
	"fmt"
	"os"

	"github.com/vmlet/vmlet/test/guest"
)

// lazy: restores whose time must not depend on the size of memory, beside virsh's,
// which has no other than those that read all of it.
func (b *bench) lazy() error {
	qemu, err := guest.QEMU10()
	if err != nil {
		b.table.row("lazy restore", "no QEMU here that can: "+err.Error(), "–", "–", "–")
		return nil
	}
	beside := (*bench).virsh
	if !b.libvirt {
		beside = nil
	}
	return b.lazySizes("lazy restore", qemu, beside)
}

// lazySizes are the lazy restores of guests of several sizes; qemu is the one to run,
// "": that which is installed, or another VMM. beside makes what restores the same
// guest another way, with the installed QEMU; nil: nothing does.
func (b *bench) lazySizes(what, qemu string, beside func(*bench) (system, error)) error {
	var first sample
	for _, size := range []uint64{512 << 20, 2 << 30, 16 << 30} {
		sized := *b
		sized.machine.memory = size
		sized.runs = max(b.runs, 9) // a tenth of a second each, of which a third can be noise
		restores, err := sized.restoresOf(sized.vmlet(qemu, "--lazy"))
		if err != nil {
			return err
		}
		if first == nil {
			first = restores
		}
		says := ratio(restores, first) + " of the smallest's"
		var theirs sample
		if beside != nil {
			few := sized
			few.runs = min(b.runs, 3) // seconds each
			if theirs, err = few.restoresOf(func() (system, error) { return beside(&few) }); err != nil {
				return err
			}
			says += "; " + faster(theirs, restores)
		}
		b.table.row(fmt.Sprintf("%s until the next byte, %d MiB", what, size>>20), restores.String(), theirs.String(), "–", says)
	}
	return nil
}

// restoresOf are those of a system that is made for them.
func (b *bench) restoresOf(make func() (system, error)) (sample, error) {
	s, err := make()
	if err != nil {
		return nil, err
	}
	restores, err := b.restoresFromOne(s)
	if cerr := s.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name(), err)
	}
	return restores, nil
}

// restoresFromOne saves once and restores from that image again and again: the guest
// has no disks.
func (b *bench) restoresFromOne(s system) (sample, error) {
	if err := b.bootAndSettle(s); err != nil {
		return nil, err
	}
	to := b.image(s.name(), 0)
	defer os.RemoveAll(to)
	if err := s.save(b.ctx, to); err != nil {
		return nil, err
	}
	var restores sample
	for n := -1; n < b.runs; n++ {
		took, err := b.untilNextByte(s.console(), func() error { return s.restore(b.ctx, to) })
		if err != nil {
			return nil, err
		}
		if n >= 0 {
			restores = append(restores, took)
		}
		if err := s.destroy(b.ctx); err != nil {
			return nil, err
		}
	}
	return restores, nil
}
