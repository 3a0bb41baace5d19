package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
)

const (
	// maxState bounds the device state that is taken of a VMM, in bytes. QEMU has some
	// 30 KiB a vCPU, and arm64's firmware of 128 MiB; cloud-hypervisor's files may have
	// as much together.
	maxState = 512 << 20
	// lookEvery is how often it is looked how much there is by now.
	lookEvery = 100 * time.Millisecond
	// streamPerPage is what a VMM's stream has for each page besides its
	// content: a 64-bit header (QEMU's migration/ram.c), rounded up.
	streamPerPage = 16
)

// saveState has the VMM write its state to memory, where that doesn't have the guest's
// RAM in it: a VMM that hangs in a write to a disk can't let its guest go on.
func (p *prepared) saveState(ctx context.Context, v *vm, state *os.File) error {
	if v.ram == nil {
		err := v.writeState(ctx, state, maxState+v.streamHeaders()+v.plan.Memory.Size)
		if err == nil {
			return nil
		}
		// A VMM says of a full disk no more than "Input/output error".
		return errors.Join(err, p.onDisk(ctx, func() error { return p.image.CheckSpace(leastRoom) }))
	}
	fd, err := unix.MemfdCreate("device state", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	inMemory := os.NewFile(uintptr(fd), "device state")
	defer func() {
		if p.hanging == nil { // else it is still read
			inMemory.Close()
		}
	}()
	if err := v.writeState(ctx, inMemory, maxState); err != nil {
		return err
	}
	return p.onDisk(ctx, func() error {
		defer inMemory.Close()
		// A VMM that is not to be trusted may go on writing.
		_, err := io.Copy(state, io.NewSectionReader(inMemory, 0, maxState))
		return err
	})
}

// writeState ends a VMM's writing that has no end: memory and disks are the node's.
func (v *vm) writeState(ctx context.Context, f *os.File, limit uint64) error {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-call.Done():
				return
			}
			if err := checkState(f, limit); err != nil {
				cancel(err)
			}
		}
	}()
	err := v.machine().SaveState(call, f, v.ram != nil)
	switch {
	case err == nil:
		return checkState(f, limit)
	case call.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w (%v)", context.Cause(call), err)
	}
	return err
}

// checkState refuses more than any VMM's state has.
func checkState(f *os.File, limit uint64) error {
	st, err := f.Stat()
	if err == nil && uint64(st.Size()) > limit {
		err = fmt.Errorf("the VMM has written more than %d MiB, which no device state has: it is broken, or not to be trusted: stop the VM, and start it with another version of its VMM", limit>>20)
	}
	return err
}

// streamHeaders are in a stream that has all of the RAM, in bytes.
func (v *vm) streamHeaders() uint64 { return v.plan.Memory.Size / memory.PageSize * streamPerPage }

// residentAnonymous returns how much memory of its own a process has touched,
// in bytes: RssAnon of /proc/PID/status, see proc(5).
func residentAnonymous(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nRssAnon:")
	line, _, found := strings.Cut(rest, " kB\n")
	kib, err := strconv.ParseUint(strings.TrimSpace(line), 10, 50)
	if err != nil || !found {
		return 0, contract.Errorf("%s: no RssAnon in kB: %w", contract.ObjectName(path), errors.Join(err, os.ErrInvalid))
	}
	return kib << 10, nil
}
