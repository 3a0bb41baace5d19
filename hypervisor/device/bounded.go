package device

import (
	"context"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
)

// hangLimit bounds all that is asked of one device. A healthy one takes a few milliseconds and the slowest that is of any use
// under 200, so only a kernel that doesn't answer reaches it.
const hangLimit = 5 * time.Second

// Within runs ask on a goroutine of its own and waits for it no longer than ctx and hangLimit allow; the error is ctx's then. A
// system call that never returns then costs one thread, and not the caller. As it may go on after that, ask must write to
// nothing that the caller holds; what it returns late is dropped.
func Within[T any](ctx context.Context, ask func(context.Context) T) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, hangLimit)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- ask(ctx) }()
	select {
	case answer := <-done:
		return answer, nil
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Bounded is Within for a check: one that doesn't end in time is a hypervisor that can't be used.
func Bounded(ctx context.Context, device string, try func(context.Context) hypervisor.Status) hypervisor.Status {
	s, err := Within(ctx, try)
	if err != nil {
		return NoAnswer(device, err).Status()
	}
	return s
}

// NoAnswer words an error of Within.
func NoAnswer(device string, err error) *Failure {
	return &Failure{
		Reason: fmt.Sprintf("%s didn't answer in time (%v)", device, err),
		Remedy: "this machine may be busy: ask again; if it stays so, look at the kernel's log (dmesg)",
	}
}
