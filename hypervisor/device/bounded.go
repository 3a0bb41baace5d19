package device

import (
	"context"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
)

// hangLimit bounds a whole check. A healthy one takes a few milliseconds and the slowest that is of any use under 200, so only
// a kernel that doesn't answer reaches it.
const hangLimit = 2 * time.Second

// Bounded runs try on a goroutine of its own and waits for it no longer than ctx and hangLimit allow. A system call that never
// returns then costs one thread, and not the caller.
func Bounded(ctx context.Context, device string, try func(context.Context) hypervisor.Status) hypervisor.Status {
	ctx, cancel := context.WithTimeout(ctx, hangLimit)
	defer cancel()
	done := make(chan hypervisor.Status, 1)
	go func() { done <- try(ctx) }()
	select {
	case s := <-done:
		return s
	case <-ctx.Done():
		return hypervisor.Status{
			Level:  hypervisor.Unusable,
			Reason: fmt.Sprintf("%s didn't answer in time (%v)", device, ctx.Err()),
			Remedy: "look at the kernel's log (dmesg)",
		}
	}
}
