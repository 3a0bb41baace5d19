package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim"
)

// scopes are cgroups that systemd makes, as transient units: one for each run of a
// VM. The agent's own unit can be stopped, killed and started again without them,
// and systemd ends them before it takes storage and network away from them.
type scopes struct {
	v2    // parent is the slice's path
	slice string
	bus   *bus
}

// openScopes has VMs' scopes in a slice.
func openScopes(mount, slice string, dial dialer) (Cgroups, error) {
	b := &bus{dial: dial, patience: busPatience}
	root, err := b.controlGroup()
	if err != nil {
		b.close()
		return nil, fmt.Errorf("asking systemd for its cgroup: %w", err)
	}
	return &scopes{v2{mount, filepath.Join(root, slicePath(slice))}, slice, b}, nil
}

// slicePath is where systemd has a slice's cgroup: a-b.slice is in a.slice
// (systemd.slice(5)).
func slicePath(slice string) string {
	name := strings.TrimSuffix(slice, ".slice")
	path := "/"
	for i, r := range name + "-" {
		if r == '-' {
			path = filepath.Join(path, name[:i]+".slice")
		}
	}
	return path
}

// suffixLength is how many characters tell the scopes of a VM's runs apart: one
// may be known to systemd for a moment after its last process has ended.
const suffixLength = 8

// Plan names a scope. A drop-in for vmlet-.scope holds for all VMs, one for
// vmlet-VM-.scope for one (systemd.unit(5)).
func (s *scopes) Plan(vm string) Cgroup {
	unit := fmt.Sprintf("vmlet-%s-%s.scope", vm, strings.ToLower(rand.Text()[:suffixLength]))
	return Cgroup{Version: 2, Paths: map[string]string{"": filepath.Join(s.parent, unit)}, Unit: unit}
}

// Make does nothing: there is no scope without a process.
func (s *scopes) Make(Cgroup) error { return nil }

// Enter has systemd move the process when it runs.
func (s *scopes) Enter(c Cgroup, attr *syscall.SysProcAttr) (func(int) error, error) {
	if c.Unit == "" {
		return s.v2.Enter(c, attr)
	}
	return func(pid int) error {
		if pid == 0 {
			return nil
		}
		return s.Add(c, pid)
	}, nil
}

// Add starts the scope, around its first process.
func (s *scopes) Add(c Cgroup, pid int) error {
	if c.Unit == "" {
		return s.v2.Add(c, pid)
	}
	err := s.bus.start(c.Unit, s.properties(c, pid))
	// Where the process is counts, whatever is known of the job.
	path, errPath := ownPath(fmt.Sprintf("/proc/%d/cgroup", pid))
	switch {
	case errors.Is(errPath, os.ErrNotExist):
		err = unix.ESRCH
	case errPath != nil:
		err = errors.Join(err, errPath)
	case path == c.Paths[""]:
		return nil
	case err == nil:
		err = fmt.Errorf("systemd has put it into %s", path)
	}
	return wrapCgroup("join", c, err)
}

// endMargin is what a shim may take beside the guest's grace, to end the VMM and
// to free RAM of any size.
const endMargin = 2 * time.Minute

// properties are a scope's (org.freedesktop.systemd1(5)).
func (s *scopes) properties(c Cgroup, pid int) []systemd.Property {
	set := func(name string, value any) systemd.Property {
		return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
	}
	return []systemd.Property{
		set("Description", "vmlet: a VM's shim and VMM"),
		set("Slice", s.slice),
		set("PIDs", []uint32{uint32(pid)}),
		// All controllers, so that what the VM uses is counted. It also has systemd
		// leave a scope alone if the kernel kills one of its processes for want
		// of memory: the shim tells of its VMM's end (OOMPolicy=).
		set("Delegate", true),
		// A scope that has failed goes by itself.
		set("CollectMode", "inactive-or-failed"),
		// To all processes: the VMM ignores it, the shim asks the guest to shut down.
		set("KillSignal", int32(shim.StopSignal)),
		set("TimeoutStopUSec", uint64((c.Grace + endMargin).Microseconds())),
		// What a guest needs until it has ended.
		set("After", []string{"local-fs.target", "remote-fs.target", "network.target"}),
	}
}

func (s *scopes) Close() { s.bus.close() }

// dialer connects with systemd until the context is done.
type dialer func(context.Context) (*systemd.Conn, error)

// systemBus is systemd's, by way of the system's message bus or, without one, its own socket.
func systemBus(ctx context.Context) (*systemd.Conn, error) { return systemd.NewWithContext(ctx) }

// systemdRuns is what sd_booted(3) looks at.
func systemdRuns() bool {
	st, err := os.Lstat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// bus is a connection with systemd, which is made again when it is lost.
type bus struct {
	dial     dialer
	patience time.Duration // for one answer

	mu   sync.Mutex
	conn *systemd.Conn
}

// busPatience is the default of D-Bus's own libraries.
const busPatience = 25 * time.Second

func (b *bus) connected() (*systemd.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
	ctx, cancel := context.WithCancel(context.Background()) // it ends the connection, too
	late := time.AfterFunc(b.patience, cancel)
	conn, err := b.dial(ctx)
	if err == nil && !late.Stop() {
		conn.Close()
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("connecting with systemd: %w", err)
	}
	b.conn = conn
	return conn, nil
}

func (b *bus) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
}

// controlGroup is the path of the cgroup that systemd's are below.
func (b *bus) controlGroup() (string, error) {
	conn, err := b.connected()
	if err != nil {
		return "", err
	}
	defer time.AfterFunc(b.patience, conn.Close).Stop()
	value, err := conn.GetManagerProperty("ControlGroup")
	if err != nil {
		return "", err
	}
	return filepath.Clean("/" + strings.Trim(value, `"`)), nil
}

// start starts a transient unit and waits until systemd is done with it.
func (b *bus) start(unit string, properties []systemd.Property) error {
	conn, err := b.connected()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), b.patience, fmt.Errorf("systemd did not start it within %v", b.patience))
	defer cancel()
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, unit, "fail", properties, done)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd: the job to start it is %q: systemctl status %s", result, unit)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
