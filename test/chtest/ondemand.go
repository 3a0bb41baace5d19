package chtest

import (
	"errors"
	"os"
	"time"
)

// fillLater reads what the guest needs to go on, which is its first page, and all
// else behind its back. The file stays open, and must stay whole until then.
func (v *vm) fillLater(file *os.File, ranges []memoryRange, pause time.Duration) error {
	v.loadStop = make(chan struct{})
	first, rest := split(ranges)
	if err := v.ram.load(file, first); err != nil {
		close(v.loaded)
		return errors.Join(err, file.Close())
	}
	go func(stop <-chan struct{}) {
		var err error
		select {
		case <-stop:
		case <-time.After(pause):
			err = v.loadRest(file, first, rest)
		}
		file.Close()
		close(v.loaded)
		if err != nil {
			v.vmm.Terminate() // a page that can't be had is the guest's end
		}
	}(v.loadStop)
	return nil
}

// loadRest is load from behind the first page on.
func (v *vm) loadRest(file *os.File, first, rest []memoryRange) error {
	offset := int64(0)
	for _, m := range first {
		offset += int64(m.Length)
	}
	return v.ram.loadFrom(file, offset, rest)
}

// split takes the first page off.
func split(ranges []memoryRange) (first, rest []memoryRange) {
	page := min(uint64(os.Getpagesize()), ranges[0].Length)
	first = []memoryRange{{ranges[0].Address, page}}
	rest = append(rest, memoryRange{ranges[0].Address + page, ranges[0].Length - page})
	return first, append(rest, ranges[1:]...)
}

// busy tells whether memory is still being read.
func (v *vm) busy() bool {
	select {
	case <-v.loaded:
		return false
	default:
		return true
	}
}
