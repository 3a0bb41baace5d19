package kind

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/capabilities/hostdevice/finder"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/resourcename"
	"github.com/vmlet/vmlet/sysfs"
)

const (
	// DefaultCount is how many containers may have a device node at once.
	DefaultCount = 1000
	// MaxCount bounds it: the kubelet takes a list of 4 MiB at most, and writes
	// all ids that are in use to its checkpoint.
	MaxCount = 10_000
)

// Sockets of services of the node, unless others are configured.
const (
	DefaultQGSSocket      = "/var/run/tdx-qgs/qgs.socket"
	DefaultPRHelperSocket = "/var/run/kubevirt/daemons/pr/pr-helper.sock"
)

// Config is what is offered.
type Config struct {
	Roots sysfs.Roots
	// Hypervisors say which device nodes VMs ask for.
	Hypervisors []hypervisor.Kind
	// Permitted host devices, each under its resource.
	Permitted hostdevice.Permitted
	// Counts by the last part of a resource's name ("kvm"); default DefaultCount,
	// and of tdx as many as the processor has keys for.
	Counts map[string]int
	// CDI are devices of the container device interface that are given in place of
	// device nodes and folders, by resource: VENDOR/CLASS=NAME; for host devices
	// VENDOR/CLASS, and the name is the PCI address of the group's first function,
	// the mediated device's UUID or the USB device's id.
	CDI map[string]string
	// QGSSocket is of TDX' quote generation service, PRHelperSocket of QEMU's
	// helper for persistent reservations; empty: the defaults.
	QGSSocket, PRHelperSocket string
}

// node is a resource and its device node below /dev.
type node struct{ resource, path string }

// nodes are the device nodes that are offered, each once.
func (c Config) nodes() []node {
	var all []node
	known := make(map[string]bool)
	add := func(resource, path string) {
		if !known[resource] {
			known[resource] = true
			all = append(all, node{resource, path})
		}
	}
	for _, h := range c.Hypervisors {
		for _, r := range h.DeviceRequests() {
			add(r.Resource, strings.TrimPrefix(r.Path, "/dev/"))
		}
	}
	add(contract.ResourceSEV, "sev")
	add(contract.ResourceIOMMUFD, "iommu")
	return all
}

// socket is a resource and the socket of the service that it stands for.
type socket struct {
	resource, path string
	count          func(*Hosts) int
}

// sockets are the services that are offered.
func (c Config) sockets() []socket {
	pr := contract.ResourcePRHelper
	return []socket{
		{contract.ResourceTDX, or(c.QGSSocket, DefaultQGSSocket), c.tdx},
		{pr, or(c.PRHelperSocket, DefaultPRHelperSocket), func(*Hosts) int { return c.count(pr) }},
	}
}

// Kinds are all kinds that are offered, if there is something of them.
func (c Config) Kinds() []deviceplugin.Kind {
	var all []deviceplugin.Kind
	for _, n := range c.nodes() {
		all = append(all, NewNode(n.resource, n.path, c.Roots, c.count(n.resource), c.CDI[n.resource]))
	}
	hosts := NewHosts(c.Roots)
	for _, s := range c.sockets() {
		all = append(all, NewSocket(s.resource, s.path, func() int { return s.count(hosts) }, c.CDI[s.resource]))
	}
	for _, r := range c.hostDevices() {
		if !r.External {
			all = append(all, newHostDevice(r, c.Permitted, c.Roots, hosts, c.CDI[r.Name]))
		}
	}
	return all
}

// hostDevices are the permitted resources, with nothing of any machine.
func (c Config) hostDevices() []finder.Resource { return finder.Find(c.Permitted, &sysfs.Host{}) }

func or(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func (c Config) count(resource string) int {
	if n, set := c.Counts[resourcename.Word(resource)]; set {
		return n
	}
	return DefaultCount
}

// tdx is how many guests can have a key of their own, as the misc
// controller counts; a kernel that doesn't tell has no TDX.
func (c Config) tdx(hosts *Hosts) int {
	capacity := hosts.Read().Virtualization.Misc["tdx"]
	if n, set := c.Counts["tdx"]; set && capacity > 0 {
		return n
	}
	return int(min(capacity, MaxCount))
}

// cdiName is VENDOR/CLASS, and =NAME or not (the specification of the container
// device interface, "Kind").
var cdiName = regexp.MustCompile(`^[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?/[A-Za-z]([-A-Za-z0-9_]*[A-Za-z0-9])?(=[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?)?$`)

// Validate reports every fault; keys are as in a configuration file: "counts",
// "cdi", "qgsSocket", "prHelperSocket".
func (c Config) Validate(fault func(key, format string, args ...any)) {
	shared := make(map[string]bool) // resources, of all of one device
	for _, n := range c.nodes() {
		shared[n.resource] = true
	}
	for _, s := range c.sockets() {
		shared[s.resource] = true
	}
	words := make(map[string]bool)
	for r := range shared {
		words[resourcename.Word(r)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(c.Counts)) {
		if !words[name] {
			fault("counts."+name, "there is no such device: choose of %s", strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		if n := c.Counts[name]; n < 1 || n > MaxCount {
			fault("counts."+name, "%d: 1 to %d", n, MaxCount)
		}
	}
	own := make(map[string]bool) // resources whose devices have names
	for _, r := range c.hostDevices() {
		own[r.Name] = !r.External
	}
	for _, resource := range slices.Sorted(maps.Keys(c.CDI)) {
		c.validateCDI(resource, shared[resource], own[resource], fault)
	}
	for key, path := range map[string]string{"qgsSocket": c.QGSSocket, "prHelperSocket": c.PRHelperSocket} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
			fault(key, "%q is not an absolute, clean path", path)
		}
	}
}

func (c Config) validateCDI(resource string, shared, own bool, fault func(key, format string, args ...any)) {
	key, name := fmt.Sprintf("cdi[%q]", resource), c.CDI[resource]
	named := strings.Contains(name, "=")
	switch {
	case !shared && !own:
		fault(key, "vmlet offers no such resource")
	case !cdiName.MatchString(name) || named != shared:
		if shared {
			fault(key, "%q: want VENDOR/CLASS=NAME, as in /etc/cdi: vendor.com/device=kvm", name)
		} else {
			fault(key, "%q: want VENDOR/CLASS, as in /etc/cdi: vendor.com/gpu. Each device's name is its address", name)
		}
	}
}
