package capabilities

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// keyFormat is a part of every key: answers that were kept in another form, or
// asked for in another way, are not read.
const keyFormat = 1

// maxKeyFile bounds what is read of a file for the key, in bytes; the longest,
// /proc/cpuinfo, is read by its head.
const maxKeyFile = 16 << 10

// HostKey changes whenever this machine might answer otherwise than before to
// what a hypervisor or a VMM asks it: another kernel or command line, another
// processor, microcode or flags, other parameters of the hypervisors' modules,
// another device node of theirs or right to open it, another vmlet. What firmware or an
// outer hypervisor sets changes with a boot at the earliest, so the boot is in
// it, too. It takes well under a millisecond and may be called concurrently.
func HostKey(roots sysfs.Roots, version string, hypervisors []hypervisor.Hypervisor) string {
	k := newKey("host", version)
	k.add("user", fmt.Sprint(os.Geteuid()))
	for _, name := range []string{"random/boot_id", "osrelease", "version"} {
		k.file(roots.ProcPath("sys", "kernel", name))
	}
	k.file(roots.ProcPath("cmdline"))
	k.add("processor", processorIdentity(head(roots.ProcPath("cpuinfo"))))
	for _, h := range hypervisors {
		depends := h.DependsOn()
		for _, path := range moduleParameters(roots, depends.Modules) {
			k.file(path)
		}
		for _, d := range depends.Devices {
			path := roots.DevPath(d.Path)
			k.add(path, deviceState(path))
		}
	}
	return k.String()
}

// HostKeys has the HostKey of a machine for those who ask one after the other: a start or
// a restore does so for each VMM, for the image and for each hypervisor.
type HostKeys struct {
	roots       sysfs.Roots
	version     string
	hypervisors []hypervisor.Hypervisor

	mu  sync.Mutex
	key string
	at  time.Time // when it was looked at; zero: not yet
}

// moment is how long the machine is believed to be as it was looked at: longer than a
// start takes to choose, and short for who changes it.
const moment = 50 * time.Millisecond

// NewHostKeys returns that of these roots.
func NewHostKeys(roots sysfs.Roots, version string, hypervisors []hypervisor.Hypervisor) *HostKeys {
	return &HostKeys{roots: roots, version: version, hypervisors: hypervisors}
}

// Recent is the HostKey as it is now, or was a moment ago. May be called concurrently.
func (h *HostKeys) Recent() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.at.IsZero() || now.Sub(h.at) >= moment {
		// The time before: what changes meanwhile is not believed for longer.
		h.key, h.at = HostKey(h.roots, h.version, h.hypervisors), now
	}
	return h.key
}

// key takes parts in, each so that it can't be mistaken for others.
type key struct{ hash.Hash }

func newKey(kind, version string) key {
	k := key{sha256.New()}
	k.add(kind, fmt.Sprintf("format %d, vmlet %s", keyFormat, version))
	return k
}

func (k key) add(name, value string) { fmt.Fprintf(k, "%q=%q\n", name, value) }
func (k key) file(path string)       { k.add(path, head(path)) }
func (k key) String() string         { return hex.EncodeToString(k.Sum(nil)) }

// head is a file's content, up to maxKeyFile; of one that can't be read, why.
func head(path string) string {
	content, err := device.Head(path, maxKeyFile)
	if err != nil {
		return "?" + err.Error()
	}
	return content
}

// processorIdentity is what /proc/cpuinfo says of the first CPU and doesn't
// change by itself, as its frequency does. The words are those of x86, arm64,
// s390x and POWER.
func processorIdentity(cpuinfo string) string {
	lasting := []string{
		"vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags", "vmx flags", "bugs",
		"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
		"features", "facilities", "cpu", "revision", "machine",
	}
	seen := map[string]bool{}
	var out []string
	for line := range strings.Lines(cpuinfo) {
		name, value, _ := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !seen[name] && slices.Contains(lasting, name) {
			seen[name] = true
			out = append(out, name+":"+strings.TrimSpace(value))
		}
	}
	return strings.Join(out, "\n")
}

// maxParameters bounds how many parameters are read; KVM's modules have some 60.
const maxParameters = 512

// moduleParameters are the parameters of the modules with such names. Those of a module
// that isn't loaded aren't there.
func moduleParameters(roots sysfs.Roots, modules []string) []string {
	var paths []string
	for _, module := range modules {
		found, err := filepath.Glob(roots.SysPath("module", module, "parameters", "*"))
		if err == nil { // the only error is a pattern that makes none
			paths = append(paths, found...)
		}
	}
	slices.Sort(paths)
	return paths[:min(len(paths), maxParameters)]
}

// deviceState is what a device node is, whose, and what comes of opening it.
func deviceState(path string) string {
	state := fingerprint.Of(path, "")
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return state
	}
	fd, err := device.Retry(func() (int, error) { return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) })
	if err != nil {
		return state + " " + err.Error()
	}
	unix.Close(fd)
	return state + " opens"
}
