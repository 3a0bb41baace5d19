package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/vmm"
)

// recheckAfter is how long it is believed that a hypervisor does not work: its
// module may be loaded any time. That one works is believed until its device
// node changes.
const recheckAfter = 10 * time.Second

// tried is a hypervisor whose check, which takes tens of milliseconds, is
// remembered.
type tried struct {
	hypervisor.Hypervisor

	mu     sync.Mutex
	status hypervisor.Status
	at     time.Time
	device deviceID
}

// deviceID tells whether a device node is the same one.
type deviceID struct {
	there    bool
	ino, dev uint64
}

func deviceOf(path string) deviceID {
	fi, err := os.Stat(path)
	if err != nil {
		return deviceID{}
	}
	st := fi.Sys().(*syscall.Stat_t)
	return deviceID{true, st.Ino, st.Rdev}
}

// Unwrap is for hypervisor.As: all but Check is the hypervisor's own.
func (t *tried) Unwrap() hypervisor.Hypervisor { return t.Hypervisor }

// Check tries the hypervisor, or says what came of it the last time.
func (t *tried) Check(ctx context.Context) hypervisor.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	device := deviceOf(t.Device())
	fresh := t.status.Level == hypervisor.Works || time.Since(t.at) < recheckAfter
	if !t.at.IsZero() && device == t.device && fresh {
		return t.status
	}
	status := t.Hypervisor.Check(ctx)
	if ctx.Err() == nil {
		t.status, t.at, t.device = status, time.Now(), device
	}
	return status
}

// node is what this machine can run VMs with.
type node struct {
	hypervisors *hypervisor.Registry
	vmms        []vmm.VMM // the preferred one first
}

func newNode(known *hypervisor.Registry, vmms []vmm.VMM) (*node, error) {
	var all []hypervisor.Hypervisor
	for _, h := range known.All() {
		all = append(all, &tried{Hypervisor: h})
	}
	remembered, err := hypervisor.New(all...)
	if err != nil {
		return nil, err
	}
	return &node{hypervisors: remembered, vmms: vmms}, nil
}

// warm asks everything once, so that the first VM need not wait for it.
func (n *node) warm(ctx context.Context, log *slog.Logger) {
	var all sync.WaitGroup
	for _, h := range n.hypervisors.All() {
		all.Go(func() { h.Check(ctx) })
	}
	for _, v := range n.vmms {
		all.Go(func() {
			if _, err := v.Info(ctx); err != nil && ctx.Err() == nil {
				log.Warn("no VM can be started with this VMM", "vmm", v.Name(), "error", err)
			}
		})
	}
	all.Wait()
}

// vmm finds a VMM by the specification's word; "auto" and "" are the first.
func (n *node) vmm(name string) (vmm.VMM, error) {
	if len(n.vmms) == 0 {
		return nil, fmt.Errorf("this agent has no VMM")
	}
	if name == "" || name == "auto" {
		return n.vmms[0], nil
	}
	i := slices.IndexFunc(n.vmms, func(v vmm.VMM) bool { return v.Name() == name })
	if i < 0 {
		names := make([]string, len(n.vmms))
		for i, v := range n.vmms {
			names[i] = v.Name()
		}
		return nil, invalid("vmm", "%q is not to be had on this node: choose auto or one of %v", name, names)
	}
	return n.vmms[i], nil
}
