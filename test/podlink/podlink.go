// Package podlink makes the network between a pod and its guest, in network namespaces, for
// tests with real DHCP clients in the guest's place.
package podlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/socket"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// patience is in idle time of the processors: nothing waits as long unless it is broken.
const patience = time.Minute

// The MACs of the guest's interface and of the pod's bridge.
var (
	GuestMAC  = lease.MAC{0x02, 0, 0, 0, 0, 0x10}
	RouterMAC = lease.MAC{0x02, 0, 0, 0, 0, 0}
)

// Link is a guest's network: two namespaces, of pod and guest, and what connects them. The
// pod's side is "br0", a bridge, the guest's "eth0", which is down at first.
type Link struct {
	// Context ends when the test has waited long enough.
	Context    context.Context
	t          *testing.T
	pod, guest namespace
	// ended is closed when the program that was started has ended; nil: none was.
	ended chan struct{}
}

// New makes one that ends with the test.
func New(t *testing.T) *Link {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces are made by root alone")
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	t.Cleanup(cancel)
	l := &Link{Context: ctx, t: t, pod: newNamespace(t), guest: newNamespace(t)}
	l.Pod(l.makePod)
	return l
}

// Pod and Guest call a function in a namespace; processes that it starts are there, too.
func (l *Link) Pod(f func() error) {
	l.t.Helper()
	l.pod.do(l.t, f)
}

func (l *Link) Guest(f func() error) {
	l.t.Helper()
	l.guest.do(l.t, f)
}

// Set sets what the kernel does with IPv6 by default in a namespace, or on one interface.
func Set(on, name string, value int) error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/"+on+"/"+name, []byte(strconv.Itoa(value)), 0)
}

// Up brings the guest's interface up, and waits until it has its link-local address.
func (l *Link) Up() {
	l.t.Helper()
	l.Guest(func() error { return up("eth0", GuestMAC) })
	l.Await("a link-local address", func() bool { return l.Address("fe80:") != "" })
}

// Address returns the IPv6 address of the guest that begins so; empty: it has none that
// it may use yet, as the kernel still looks whether another has it.
func (l *Link) Address(prefix string) (found string) {
	l.t.Helper()
	l.Guest(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(eth0, netlink.FAMILY_V6)
		for _, a := range addresses {
			if strings.HasPrefix(a.IP.String(), prefix) && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				found = a.IP.String()
			}
		}
		return err
	})
	return found
}

// makePod makes the bridge, and the pair whose one end is its port.
func (l *Link) makePod() error {
	off := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &off}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(l.guest.file.Fd())}
	return errors.Join(netlink.LinkAdd(bridge), netlink.LinkAdd(pair), netlink.LinkSetMaster(pair, bridge), netlink.LinkSetUp(pair), up("br0", RouterMAC))
}

func up(name string, mac lease.MAC) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetHardwareAddr(l, net.HardwareAddr(mac[:])), netlink.LinkSetUp(l))
}

// Await waits until something is so.
func (l *Link) Await(what string, is func() bool) {
	l.t.Helper()
	for !is() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-l.Context.Done():
			l.t.Fatalf("%s: %v", what, context.Cause(l.Context))
		case <-l.ended:
			l.t.Fatalf("%s: the client has ended", what)
		}
	}
}

// AddAddress gives the pod's bridge an address.
func (l *Link) AddAddress(address string) {
	l.t.Helper()
	l.Pod(func() error {
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		return netlink.AddrAdd(bridge, a)
	})
}

// Sockets opens those on which the guest's questions come in. They are the caller's.
func (l *Link) Sockets() (s lease.Sockets) {
	l.t.Helper()
	l.Pod(func() (err error) {
		s, err = socket.Open("br0", GuestMAC)
		return err
	})
	return s
}

// Script returns the path of a program that notes what a client tells it, one variable a
// line, in the file whose path it returns, too.
func (l *Link) Script() (script, notes string) {
	l.t.Helper()
	dir := l.t.TempDir()
	script, notes = filepath.Join(dir, "script"), filepath.Join(dir, "notes")
	text := "#!/bin/sh\necho \"event=$1\" >>" + notes + "\nenv >>" + notes + "\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		l.t.Fatal(err)
	}
	return script, notes
}

// Start starts a program in the guest's namespace. The processes that it leaves end with
// the test, and what it keeps is nowhere but in memory.
func (l *Link) Start(name string, args ...string) {
	l.t.Helper()
	const hidden = "for d in /run /var/lib; do mount -t tmpfs tmpfs $d; done; mkdir /var/lib/dhcpcd; exec \"$@\""
	cmd := exec.Command("/bin/sh", append([]string{"-ec", hidden, "sh", name}, args...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS}
	cmd.Env = append(os.Environ(), path)
	output := new(Log)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.WaitDelay = time.Second
	l.Guest(cmd.Start)
	l.ended = make(chan struct{})
	go func() {
		cmd.Wait()
		close(l.ended)
	}()
	l.t.Cleanup(func() {
		cmd.Process.Kill()
		<-l.ended
		if l.t.Failed() {
			l.t.Logf("%s:\n%s", name, output)
		}
	})
}

// Run runs a program in the guest's namespace to its end.
func (l *Link) Run(name string, args ...string) string {
	l.t.Helper()
	out, err := l.try(name, args...)
	if err != nil {
		l.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// Expect looks for lines in what a client has noted.
func (l *Link) Expect(notes string, want []string) {
	l.t.Helper()
	b, err := os.ReadFile(notes)
	if err != nil {
		l.t.Fatal(err)
	}
	got := string(b)
	for _, line := range want {
		if !strings.Contains("\n"+got, "\n"+line+"\n") {
			l.t.Errorf("the client has not noted %q", line)
		}
	}
	if l.t.Failed() {
		l.t.Logf("it has noted:\n%s", got)
	}
}

// AwaitNote waits until a client has noted a line.
func (l *Link) AwaitNote(notes, line string) {
	l.t.Helper()
	l.Await(line, func() bool {
		b, _ := os.ReadFile(notes)
		return strings.Contains(string(b), line+"\n")
	})
}

// path is where clients look for other programs.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (l *Link) try(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(l.Context, name, args...)
	cmd.Env = append(os.Environ(), path)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// Another process may hold the pipe when the program has ended.
	cmd.WaitDelay = time.Second
	l.Guest(cmd.Start)
	err := cmd.Wait()
	if l.Context.Err() != nil {
		err = errors.Join(err, context.Cause(l.Context))
	}
	return out.String(), err
}

// Busybox is the path of the one that test/setup fetches.
func Busybox(t *testing.T) string {
	t.Helper()
	path, err := guest.Busybox()
	if missing := new(guest.MissingError); errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Installed returns the path of a program that test/setup installs.
func Installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath("/usr/sbin/" + name)
	if err != nil {
		t.Skipf("%v: run test/setup test", err)
	}
	return path
}

// namespace is a network namespace, which ends with the test.
type namespace struct{ file *os.File }

func newNamespace(t *testing.T) (n namespace) {
	t.Helper()
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if n.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		// Addresses can be used at once, and nobody's advertisements count but the
		// test's.
		return errors.Join(Set("default", "accept_dad", 0), Set("default", "accept_ra", 1), Set("default", "disable_ipv6", 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.file.Close() })
	return n
}

// do calls a function in the namespace; processes that it starts are there, too.
func (n namespace) do(t *testing.T, f func() error) {
	t.Helper()
	err := onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// onThread calls a function on a thread that ends with it.
func onThread(f func() error) error {
	failure := make(chan error)
	go func() {
		runtime.LockOSThread()
		failure <- f()
	}()
	return <-failure
}

// Log is what is read while it is written.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *Log) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Log) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
