package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
)

// tapGuard keeps a VMM that waits for its guest from changing the taps that the guest's present VMM uses. As it starts, a VMM
// sets each tap as it wants to find it: the length of packets' headers, what the kernel computes, which queues are used. The
// present VMM would send and receive garbage from then on. So these calls, of this process alone, come to the shim
// (seccomp_unotify(2)). Until the guest has begun to run in the new VMM it answers that they were carried out: the taps are
// set already as the guest has asked for, by the VMM that it comes from. Later calls are carried out.
type tapGuard struct {
	listener int // set when the process has started
	open     atomic.Bool
	log      *slog.Logger
}

// guarded are the calls, by their numbers for ioctl(2), linux/if_tun.h.
func guarded() []uint32 {
	return []uint32{unix.TUNSETOFFLOAD, unix.TUNSETVNETHDRSZ, unix.TUNSETQUEUE, unix.TUNSETVNETLE, unix.TUNSETVNETBE}
}

// needsTapGuard says whether a plan has taps that another VMM uses.
func needsTapGuard(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Files, func(f plan.File) bool { return f.Kind == plan.FileReceived && strings.Contains(f.Keep, "/tap") })
}

// install is called on the thread that starts the process, which inherits the filter; no_new_privs is set.
func (g *tapGuard) install() error {
	program, err := guardProgram()
	if err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("the taps of a VMM that runs can't be kept from the new one: seccomp: %w", errno)
	}
	g.listener = int(fd)
	go g.serve()
	return nil
}

// guardProgram has the filter send the calls to the listener, and let all others pass.
func guardProgram() ([]unix.SockFilter, error) {
	const number, request = 0, 16 + 8 // of struct seccomp_data: nr, and the second of args
	calls := guarded()
	filter := []bpf.Instruction{
		bpf.LoadAbsolute{Off: number, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_IOCTL, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.LoadAbsolute{Off: request, Size: 4},
	}
	for _, c := range calls {
		filter = append(filter, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c, SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
	}
	raw, err := bpf.Assemble(append(filter, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil || len(raw) > math.MaxUint16 {
		return nil, fmt.Errorf("seccomp: %d instructions: %w", len(raw), err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}

// notification and response are struct seccomp_notif and seccomp_notif_resp (linux/seccomp.h).
type notification struct {
	ID    uint64
	PID   uint32
	Flags uint32
	Data  struct {
		Number      int32
		Arch        uint32
		Instruction uint64
		Arguments   [6]uint64
	}
}

type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32
}

const (
	notifyReceive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	carryOut      = 1          // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

// serve answers until no process has the filter any more.
func (g *tapGuard) serve() {
	defer unix.Close(g.listener)
	for {
		poll := []unix.PollFd{{Fd: int32(g.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			g.log.Error("failed to await calls to taps", "error", err)
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents != 0 {
				return // POLLHUP: the process has ended
			}
			continue
		}
		var n notification
		if errno := g.ioctl(notifyReceive, unsafe.Pointer(&n)); errno != 0 {
			if errno != unix.ENOENT && errno != unix.EINTR { // the thread was killed meanwhile
				g.log.Error("failed to read a call to a tap", "error", errno)
			}
			continue
		}
		r := response{ID: n.ID}
		if g.open.Load() {
			r.Flags = carryOut
		}
		if errno := g.ioctl(notifySend, unsafe.Pointer(&r)); errno != 0 && errno != unix.ENOENT {
			g.log.Error("failed to answer a call to a tap", "error", errno)
		}
	}
}

func (g *tapGuard) ioctl(request uintptr, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(g.listener), request, uintptr(argument))
	return errno
}
