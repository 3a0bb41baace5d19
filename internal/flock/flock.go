// Package flock takes locks on open files and folders (flock(2)), which the kernel drops
// with the last descriptor.
package flock

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// Pauses are between two tries, each twice as long as the one before, from first to last:
// flock(2) itself would wait for ever, and can't be called off.
const (
	first = time.Millisecond
	last  = 64 * time.Millisecond
)

// Try locks f without waiting; how is unix.LOCK_SH or unix.LOCK_EX. The error is
// unix.EWOULDBLOCK if somebody else has it locked, or another errno.
func Try(f *os.File, how int) error {
	return interrupted.Retry(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
}

// Wait is Try again and again, for as long as somebody else has it locked and patient
// says so.
func Wait(f *os.File, how int, patient func() bool) error {
	for pause := first; ; pause = min(2*pause, last) {
		err := Try(f, how)
		if !errors.Is(err, unix.EWOULDBLOCK) || !patient() {
			return err
		}
		time.Sleep(pause)
	}
}
