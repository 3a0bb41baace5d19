// Package capabilities says what a node can give a guest, in one document: it
// asks the machine's files, the kernel and the VMMs, and keeps what is expensive to
// ask until something changes that would change the answer.
package capabilities

import (
	"log/slog"

	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

// Sources are what the document is made from.
type Sources struct {
	// Roots of the machine's files and devices.
	Roots sysfs.Roots
	// Node is the node's name; empty: the host name.
	Node string
	// Hypervisors and VMMs, the preferred ones first.
	Hypervisors *hypervisor.Local
	VMMs        []vmm.Program
	// DefaultHypervisor is what a specification that says "auto" gets; empty
	// or "auto": the first that works.
	DefaultHypervisor string
	// ObsoleteCPUModels are not offered, under any of their names.
	ObsoleteCPUModels []string
	// PermittedHostDevices may be given to guests.
	PermittedHostDevices hostdevice.Permitted
	// CacheFile keeps what is expensive to ask; empty: it isn't kept. That of a tree
	// from another machine never is.
	CacheFile string
	// Refresh asks everything again, whatever CacheFile has.
	Refresh bool
	// RecentHostKey is HostKey, of a moment ago at most; nil: the machine is looked at each
	// time.
	RecentHostKey func() string
	// Version of vmlet: what another version kept is not believed.
	Version string
	// Log defaults to slog.Default().
	Log *slog.Logger

	// ThisMachine: the roots are this machine's wherever they are, as in a
	// container with the node's folders mounted elsewhere.
	ThisMachine bool
}

func (s Sources) recentHostKey() string {
	if s.RecentHostKey == nil {
		return HostKey(s.Roots, s.Version, s.Hypervisors.All())
	}
	return s.RecentHostKey()
}

// notOurs is why something of another machine was not asked.
const notOurs = "it was not asked: the files are another machine's, on which nothing can be run"

// foreign says whether the files are those of another machine, on which nothing
// can be run. One whose devices alone are looked for elsewhere is this one.
func (s Sources) foreign() bool { return !s.ThisMachine && !s.Roots.OwnFiles() }

// cacheFile is the file that answers are kept in: not those of other roots, which
// are never this machine's.
func (s Sources) cacheFile() string {
	if s.ThisMachine || s.Roots.Own() {
		return s.CacheFile
	}
	return ""
}

func (s Sources) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}
