// Package kind has the kinds of device that vmlet offers to the kubelet.
package kind

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/internal/inotify"
	"github.com/vmlet/vmlet/internal/resourcename"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// Node is a device node that any number of containers may have: the resource is
// as many devices as may be given away at once.
type Node struct {
	resource string
	path     string // below /dev
	roots    sysfs.Roots
	count    int
	grant    deviceplugin.Grant
	probe    probe
}

// NewNode offers the device node with this path below /dev ("net/tun"), count
// times. cdi, if not empty, is the name of the device that is given in its place.
func NewNode(resource, path string, roots sysfs.Roots, count int, cdi string) *Node {
	n := &Node{resource: resource, path: path, roots: roots, count: count, probe: probe{open: openNode}}
	if cdi != "" {
		n.grant.CDI = []string{cdi}
	} else {
		n.grant.Nodes = []string{filepath.Join("/dev", path)}
	}
	return n
}

// Resource is what pods ask for.
func (n *Node) Resource() string { return n.resource }

// Interests are the device node and the way to it.
func (n *Node) Interests() []inotify.Interest {
	return []inotify.Interest{{Path: n.roots.DevPath(n.path)}}
}

// Find opens the device node.
func (n *Node) Find(ctx context.Context) []deviceplugin.Device {
	there, obstacle := n.probe.try(ctx, n.roots.DevPath(n.path))
	if !there {
		return nil
	}
	return repeat(n.resource, n.count, obstacle, &n.grant)
}

// repeat makes devices that are all the same: "kvm0", "kvm1", ...
func repeat(resource string, count int, obstacle string, grant *deviceplugin.Grant) []deviceplugin.Device {
	name := resourcename.Word(resource)
	devices := make([]deviceplugin.Device, count)
	for i := range devices {
		devices[i] = deviceplugin.Device{ID: fmt.Sprintf("%s%d", name, i), Obstacle: obstacle, Grant: grant}
	}
	return devices
}

// openNode opens a device node for reading and writing, and closes it.
func openNode(path string) (there bool, obstacle string) {
	fd, fail := device.Open(path, func() string { return "" })
	switch {
	case fail == nil:
		unix.Close(fd)
		return true, ""
	case device.Absent(fail.Errno):
		return false, ""
	}
	return true, fail.Sentence()
}

// probe tries a file that may make anyone who opens it wait: for no longer than
// openPatience, and with one attempt at a time.
type probe struct {
	open func(path string) (there bool, obstacle string)
	// pending is an attempt that hasn't ended.
	pending chan outcome
}

type outcome struct {
	there    bool
	obstacle string
}

// openPatience is how long opening a device may take. It takes microseconds; a
// machine that is very busy may let a process wait for some tenths of a second.
const openPatience = time.Second

func (p *probe) try(ctx context.Context, path string) (there bool, obstacle string) {
	if p.pending == nil {
		done := make(chan outcome, 1)
		p.pending = done
		go func() {
			var o outcome
			o.there, o.obstacle = p.open(path)
			done <- o
		}()
	}
	timer := time.NewTimer(openPatience)
	defer timer.Stop()
	select {
	case o := <-p.pending:
		p.pending = nil
		return o.there, o.obstacle
	case <-ctx.Done():
	case <-timer.C:
	}
	return true, path + " doesn't answer: look at the kernel's log (dmesg)"
}
