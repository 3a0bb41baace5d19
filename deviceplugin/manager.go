package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/vmlet/vmlet/internal/inotify"
	"github.com/vmlet/vmlet/internal/resourcename"
	"golang.org/x/sys/unix"
)

// DefaultKubeletDir is the kubelet's --root-dir, unless it is given another.
const DefaultKubeletDir = "/var/lib/kubelet"

// FolderIn is the kubelet's folder for device plugins in its --root-dir.
func FolderIn(kubeletDir string) string { return filepath.Join(kubeletDir, "device-plugins") }

// Config configures a Manager.
type Config struct {
	// Folder is the kubelet's for device plugins; empty: that in DefaultKubeletDir.
	Folder string
	// Permissions that containers get for device nodes; empty: as Permissions
	// says of this machine.
	Permissions string
	// Log; nil: slog's default.
	Log *slog.Logger
	// Changes, if set, tells of changes that no file's coming and going shows: all
	// kinds look again with each value.
	Changes <-chan struct{}
}

// Manager offers devices of several kinds. What goes wrong with one touches no
// other.
type Manager struct {
	cfg     Config
	runners []*runner
	// warned is the servers'.
	warned atomic.Bool
}

// NewManager makes a manager that offers these kinds, and does nothing before
// Run. Two kinds with one resource, and names that the kubelet refuses, are errors.
func NewManager(cfg Config, kinds []Kind) (*Manager, error) {
	if cfg.Folder == "" {
		cfg.Folder = FolderIn(DefaultKubeletDir)
	}
	if cfg.Permissions == "" {
		cfg.Permissions = Permissions("/sys/fs/cgroup")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if err := CheckFolder(cfg.Folder); err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg}
	known := make(map[string]bool)
	for _, k := range kinds {
		name := k.Resource()
		if err := resourcename.Check(name); err != nil {
			return nil, fmt.Errorf("the resource %w", err)
		}
		if known[name] {
			return nil, fmt.Errorf("the resource %s is listed twice", name)
		}
		known[name] = true
		server := NewServer(name, cfg.Folder, cfg.Permissions, cfg.Log)
		server.warned = &m.warned
		m.runners = append(m.runners, newRunner(k, server, cfg.Log))
	}
	return m, nil
}

// Run offers the devices until ctx ends. When it returns, the sockets are gone
// and nothing goes on.
func (m *Manager) Run(ctx context.Context) {
	if err := sweep(m.cfg.Folder); err != nil {
		m.cfg.Log.Warn("sockets that an earlier agent left can't be removed", "error", err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	// Watched before anybody looks: nothing falls between.
	devices := newWatch(m.interests, m.look, m.cfg.Log)
	folder := newWatch(m.folder, m.wake, m.cfg.Log)
	all.Go(func() { devices.run(ctx, m.cfg.Changes) })
	all.Go(func() { folder.run(ctx, nil) })
	for _, r := range m.runners {
		all.Go(func() { r.run(ctx) })
		all.Go(func() { r.server.Run(ctx) })
	}
}

// Status says how each resource stands, in the order of the kinds.
func (m *Manager) Status() []Status {
	all := make([]Status, 0, len(m.runners))
	for _, r := range m.runners {
		all = append(all, r.server.Status())
	}
	return all
}

func (m *Manager) interests() []inotify.Interest {
	var all []inotify.Interest
	for _, r := range m.runners {
		all = append(all, r.kind.Interests()...)
	}
	return all
}

// look has all kinds look again.
func (m *Manager) look() {
	for _, r := range m.runners {
		r.look()
	}
}

// folder is what matters in the kubelet's folder: not its checkpoint, which it
// writes with each allocation.
func (m *Manager) folder() []inotify.Interest {
	return []inotify.Interest{
		{Path: filepath.Join(m.cfg.Folder, KubeletSocket)},
		{Path: m.cfg.Folder, Inside: socketPrefix + "*"},
	}
}

func (m *Manager) wake() {
	for _, r := range m.runners {
		r.server.Wake()
	}
}

// Permissions are those that a container needs for a device node. cgroups is
// where the cgroup file system is mounted: with v2 a node that the runtime makes
// must be allowed to be made.
func Permissions(cgroups string) string {
	var st unix.Statfs_t
	if unix.Statfs(cgroups, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return "rwm"
	}
	return "rw"
}
