// Package leases has a VM's servers of leases, which tell its guest of its network.
package leases

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/vmlet/vmlet/lease"
	leaseserver "github.com/vmlet/vmlet/lease/server"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// Set tells a guest of its network, by the devices that its interfaces are. The zero value
// has none.
type Set struct {
	mu  sync.Mutex
	all map[string]*served
}

// served is one interface's server. done is closed when it has ended; nil: it has not begun.
type served struct {
	server *leaseserver.Server
	done   chan struct{}
}

// Serve lets those begin that were added.
func (l *Set) Serve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, each := range l.all {
		if each.done != nil {
			continue
		}
		each.done = make(chan struct{})
		go func() {
			defer close(each.done)
			each.server.Serve(context.Background())
		}()
	}
}

// End ends that of a device, if there is one.
func (l *Set) End(device string) error {
	l.mu.Lock()
	each := l.all[device]
	delete(l.all, device)
	l.mu.Unlock()
	if each == nil {
		return nil
	}
	each.server.Close()
	if each.done != nil {
		<-each.done
	}
	return nil
}

// EndAll ends all of them.
func (l *Set) EndAll() error {
	l.mu.Lock()
	var devices []string
	for device := range l.all {
		devices = append(devices, device)
	}
	l.mu.Unlock()
	var errs []error
	for _, device := range devices {
		errs = append(errs, l.End(device))
	}
	return errors.Join(errs...)
}

// Add makes a server of descriptors that came with the request.
func (l *Set) Add(device string, one *shim.Lease, received []*os.File, resolvConf string, log *slog.Logger) error {
	if one.Index < 0 || one.Index > len(received)-lease.SocketCount {
		return fault.New(shim.CodeInvalid, "index", "%d to %d of %d descriptors", one.Index, one.Index+lease.SocketCount-1, len(received))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if device == "" || l.all[device] != nil {
		return fault.New(shim.CodeInvalid, "device", "%q is missing or listed twice", device)
	}
	log = log.With("device", device)
	completeLease(&one.Config, resolvConf, log)
	server, err := leaseserver.New(lease.SocketsOf(received[one.Index:one.Index+lease.SocketCount]), &one.Config, log)
	if err != nil {
		return fault.New(shim.CodeInvalid, "config", "%v", err)
	}
	if l.all == nil {
		l.all = make(map[string]*served)
	}
	l.all[device] = &served{server: server}
	return nil
}

// completeLease adds what the pod's resolv.conf says. Without one the guest finds no names;
// it runs all the same.
func completeLease(c *lease.Config, resolvConf string, log *slog.Logger) {
	f, err := os.Open(resolvConf)
	if err != nil {
		log.Warn("failed to read the name servers of the pod: the guest gets none", "error", err)
		return
	}
	defer f.Close()
	r, err := lease.ReadResolver(f)
	if err != nil {
		log.Warn("failed to read the name servers of the pod: the guest gets none", "error", err)
		return
	}
	if useless := c.Complete(r); len(useless) > 0 {
		log.Warn("name servers on the pod's loopback are of no use to its guest: left out", "nameservers", useless)
	}
}
