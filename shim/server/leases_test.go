package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/podlink"
)

// leaseScene is a shim whose guest's place a DHCP client takes.
type leaseScene struct {
	*scene
	link    *podlink.Link
	sockets lease.Sockets
}

func newLeaseScene(t *testing.T) *leaseScene {
	t.Helper()
	l := &leaseScene{link: podlink.New(t)}
	l.scene = newScene(t, func(o *Options) {
		o.ResolvConf = filepath.Join(t.TempDir(), "resolv.conf")
		text := "nameserver 127.0.0.53\nnameserver 10.96.0.10\nsearch svc.cluster.local\n"
		if err := os.WriteFile(o.ResolvConf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	l.link.Up()
	l.sockets = l.link.Sockets()
	t.Cleanup(l.sockets.Close)
	return l
}

// lease is that of a device whose sockets begin at an index.
func (l *leaseScene) lease(device string, index int) shim.Lease {
	return shim.Lease{Device: device, Index: index, Config: lease.Config{
		MAC: podlink.GuestMAC, SearchDomains: []string{"sub.shop.svc.cluster.local"},
		V4: &lease.V4{Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"), Gateway: netip.MustParseAddr("10.0.2.1")},
		V6: &lease.V6{Address: netip.MustParsePrefix("fd10:0:2::2/120"), Router: netip.MustParseAddr("fe80::1")},
	}}
}

func (l *leaseScene) launchWith(leases ...shim.Lease) error {
	// The tap, say, is before them.
	files := append([]*os.File{os.Stderr}, l.sockets.Files()...)
	_, err := l.client.Launch(l.ctx, shim.Launch{Plan: l.plan("well"), Leases: leases}, files, nil)
	return err
}

// held counts the descriptors that the shim has of the sockets.
func (l *leaseScene) held() (count int) {
	l.t.Helper()
	for _, f := range l.sockets.Files() {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		l.check(err)
		count += l.holds(target) - 1 // the test's own
	}
	return count
}

// askedFor wants the guest to learn that, one variable of udhcpc's a line.
func (l *leaseScene) askedFor(want ...string) {
	l.t.Helper()
	script, notes := l.link.Script()
	l.link.Run(podlink.Busybox(l.t), "udhcpc", "-f", "-q", "-i", "eth0", "-O", "search", "-s", script)
	l.link.Expect(notes, want)
}

// TestLeases: the guest is answered from its launch to its end, with and without an agent.
func TestLeases(t *testing.T) {
	l := newLeaseScene(t)
	l.check(l.launchWith(l.lease("net0", 1)))
	l.client.Close()
	l.askedFor("ip=10.0.2.2", "router=10.0.2.1", "dns=10.96.0.10", "domain=sub.shop.svc.cluster.local", "search=sub.shop.svc.cluster.local svc.cluster.local")
	l.client = l.dial()
	_, err := l.client.Kill(l.ctx)
	l.check(err)
	l.exit()
	if n := l.held(); n != 0 {
		t.Errorf("the shim of a VM that has ended holds %d sockets", n)
	}
}

// TestLeaseFaults: what can't be answered isn't launched, and nothing of it stays.
func TestLeaseFaults(t *testing.T) {
	l := newLeaseScene(t)
	for want, change := range map[string]func(*shim.Lease){
		"leases[1]: index: 2 to 4 of 4": func(s *shim.Lease) { s.Index = 2 },
		"leases[1]: index: -1 to 1":     func(s *shim.Lease) { s.Index = -1 },
		`leases[1]: device: "net0"`:     func(s *shim.Lease) { s.Device = "net0" },
		`leases[1]: device: ""`:         func(s *shim.Lease) { s.Device = "" },
		"leases[1]: config: mac":        func(s *shim.Lease) { s.Config.MAC = lease.MAC{} },
	} {
		wrong := l.lease("net1", 1)
		change(&wrong)
		err := l.launchWith(l.lease("net0", 1), wrong)
		wantCode(t, err, shim.CodeInvalid)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want one with %q", err, want)
		}
		l.letGo()
	}
	// A file that is no packet socket.
	wantCode(t, l.launchWith(l.lease("net0", 0)), shim.CodeInvalid)
	l.letGo()
	l.check(l.launchWith(l.lease("net0", 1)))
}

// letGo waits until no socket is held: the shim closes those of what it has refused after it
// has answered.
func (l *leaseScene) letGo() {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); l.held() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("%d sockets are held", l.held())
		}
	}
}

// TestLeaseAttached: an interface that comes later is answered until it goes.
func TestLeaseAttached(t *testing.T) {
	l := newLeaseScene(t)
	l.launch()
	attach := l.attachNet(l.lease("net1", 0))
	l.machine.onPlug(errors.New("no room"), 0)
	if err := l.client.Attach(l.ctx, attach, l.sockets.Files()); err == nil {
		t.Error("a device is attached that the VMM refuses")
	}
	l.letGo()
	l.machine.onPlug(nil, 0)
	l.check(l.client.Attach(l.ctx, attach, l.sockets.Files()))
	l.askedFor("ip=10.0.2.2")
	l.check(l.client.Detach(l.ctx, detachment("net1", time.Minute)))
	if n := l.held(); n != 0 {
		t.Errorf("%d sockets are held of a device that is gone", n)
	}
	l.check(l.client.Attach(l.ctx, attach, l.sockets.Files()))
	l.askedFor("ip=10.0.2.2")

	wrong := attach
	wrong.Attachment = &plan.Attachment{Device: "net2", Instructions: json.RawMessage(`"net2"`)}
	wrong.Lease = &shim.Lease{Index: 1}
	wantCode(t, l.client.Attach(l.ctx, wrong, l.sockets.Files()), shim.CodeInvalid)
	if got := l.machine.plugged(); got[`"net2"`] != 0 || len(got) != 1 {
		t.Errorf("the VMM has %v", got)
	}
}

// TestLeaseDetached: one of the launch ends with its device, too.
func TestLeaseDetached(t *testing.T) {
	l := newLeaseScene(t)
	l.check(l.launchWith(l.lease("net0", 1)))
	if n := l.held(); n != lease.SocketCount {
		t.Errorf("%d sockets are held", n)
	}
	l.check(l.client.Detach(l.ctx, detachment("net0", time.Minute)))
	if n := l.held(); n != 0 {
		t.Errorf("%d sockets are held of a device that is gone", n)
	}
}

func (l *leaseScene) attachNet(lease shim.Lease) shim.Attach {
	return shim.Attach{
		Attachment: &plan.Attachment{Device: lease.Device, Instructions: json.RawMessage(`"` + lease.Device + `"`)},
		Lease:      &lease,
	}
}

// TestNoResolvConf: a guest whose pod has none has its addresses all the same.
func TestNoResolvConf(t *testing.T) {
	l := newLeaseScene(t)
	l.check(os.Remove(l.options.ResolvConf))
	l.check(l.launchWith(l.lease("net0", 1)))
	l.askedFor("ip=10.0.2.2", "search=sub.shop.svc.cluster.local")
}
