package server

import (
	"log/slog"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
)

// TestTapGuard: what a process does to taps is not carried out until it may, and what else it does is.
func TestTapGuard(t *testing.T) {
	if !needsTapGuard(&plan.Plan{Files: []plan.File{{Kind: plan.FileReceived, Keep: "net0-device/tap0"}}}) {
		t.Error("a plan with a tap needs no guard")
	}
	if needsTapGuard(&plan.Plan{Files: []plan.File{{Kind: plan.FileReceived}, {Kind: plan.FilePath}}}) {
		t.Error("a plan without a tap needs a guard")
	}
	g := &tapGuard{log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	pipe := [2]int{}
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	type answers struct {
		installed              error
		held, carriedOut, free unix.Errno
	}
	done := make(chan answers)
	go func() {
		runtime.LockOSThread() // and ends with its thread, which has the filter
		var a answers
		defer func() { done <- a }()
		if a.installed = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); a.installed != nil {
			return
		}
		if a.installed = g.install(); a.installed != nil {
			return
		}
		size := int32(10)
		set := func(request uintptr) unix.Errno { // of a pipe, which refuses
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pipe[0]), request, uintptr(unsafe.Pointer(&size)))
			return errno
		}
		a.held = set(unix.TUNSETVNETHDRSZ)
		a.free = set(unix.TUNGETVNETHDRSZ)
		g.open.Store(true)
		a.carriedOut = set(unix.TUNSETVNETHDRSZ)
	}()
	a := <-done
	if a.installed != nil {
		t.Skip(a.installed)
	}
	if a.held != 0 {
		t.Errorf("a call that is held back: %v", a.held)
	}
	if a.free != unix.ENOTTY || a.carriedOut != unix.ENOTTY {
		t.Errorf("another call: %v; one that is carried out: %v; want %v of both", a.free, a.carriedOut, unix.ENOTTY)
	}
}
