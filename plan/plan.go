// Package plan describes, as plain data, how one VMM process is started: its
// command line, the files that are opened for it, its memory and its user.
//
// A planner (vmm/qemu, vmm/cloudhypervisor) makes a Plan from a specification
// without touching the system; vmlet-shim carries it out. The two are often of different versions
// and processes, so a Plan is JSON and holds no behaviour. The package imports
// nothing heavy: the shim links it.
package plan

import (
	"encoding/json"

	"github.com/vmlet/vmlet/disk"
)

// FirstFile is the number of the descriptor that Files[0] becomes in the VMM:
// 0, 1 and 2 are the standard streams.
const FirstFile = 3

// Plan says how a VMM is started.
type Plan struct {
	// Name and ID of the VM, for log lines.
	Name string `json:"name"`
	ID   string `json:"id"`
	// VMM names the driver that talks to it: "qemu".
	VMM string `json:"vmm"`
	// Driver is the program that talks to it instead, by the driver protocol; nil: the shim
	// has the driver itself. A shim that doesn't know this field refuses a VMM that it
	// doesn't know.
	Driver *Driver `json:"driver,omitempty"`
	// Program is the VMM's absolute path; Args do not repeat it.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	// Env are variables, NAME=value, that the VMM has beside those of every VMM.
	Env []string `json:"env,omitempty"`
	// User that the VMM runs as; nil: the shim's own.
	User *User `json:"user,omitempty"`
	// Files are inherited by the VMM: Files[i] is descriptor FirstFile+i.
	Files  []File `json:"files"`
	Memory Memory `json:"memory"`
	// Restore is set when the VM goes on from an image.
	Restore *Restore `json:"restore,omitempty"`
	// LockedMemory is how many bytes the VMM may lock (RLIMIT_MEMLOCK), for devices
	// of the host, which reach all of the guest's memory; 0: as the shim may.
	LockedMemory uint64 `json:"lockedMemory,omitempty"`
	// Dedicated CPUs of the node; nil: the VMM's threads run wherever the VMM may.
	Dedicated *Dedicated `json:"dedicated,omitempty"`
	// Paused leaves the vCPUs stopped once the VMM is up.
	Paused bool `json:"paused,omitempty"`
	// Terminal: the VMM's standard input and output are the serial console's, a
	// terminal in raw mode; then there is no FileConsole.
	Terminal bool `json:"terminal,omitempty"`
	// Instructions are what the driver tells the VMM when it is up, in the driver's
	// own form; nil: the command line has said it all.
	Instructions json.RawMessage `json:"instructions,omitempty"`
	// Companions are started in their order, before the VMM, and ended in the opposite order, after it.
	Companions []Companion `json:"companions,omitempty"`
}

// Dedicated: each vCPU has a CPU to itself, of those that the shim may use.
type Dedicated struct {
	VCPUs int `json:"vcpus"`
	// IsolateEmulatorThread: the VMM's other threads have one, too, or two.
	IsolateEmulatorThread bool `json:"isolateEmulatorThread,omitempty"`
}

// Driver is a program that speaks the driver protocol (proto/vmlet/driver/v1). It runs as
// the VMM's user.
type Driver struct {
	// Program is its absolute path; Args do not repeat it.
	Program string   `json:"program"`
	Args    []string `json:"args,omitempty"`
}

// User is who the VMM runs as, set before exec.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Memory is the guest's RAM. It is in the file at Path, or mapped privately from the image
// that the VM is restored from (Restore.Lazy), or in the VMM alone (InVMM).
type Memory struct {
	// Size in bytes.
	Size uint64 `json:"size"`
	// Path of the file that the shim makes on a tmpfs or hugetlbfs, mode 0600,
	// owned by User. Empty when RAM is in no file of its own.
	Path string `json:"path,omitempty"`
	// InVMM: the VMM has RAM to itself, in no file. It saves and loads it with its own
	// state, and images have the layout "stream".
	InVMM bool `json:"inVMM,omitempty"`
	// PageSize in bytes of huge pages; 0: the system's ordinary pages.
	PageSize uint64 `json:"pageSize,omitempty"`
	// Bindings say which NUMA nodes of the host parts of the file come from.
	Bindings []Binding `json:"bindings,omitempty"`
	// Near says which parts of the file are allocated next to which vCPUs' dedicated CPUs.
	Near []Near `json:"near,omitempty"`
}

// Near is a part of the RAM file whose pages come from the host's NUMA node that some vCPUs run in.
type Near struct {
	// Offset in the file and size, in bytes.
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"size"`
	VCPUs  []int  `json:"vcpus"`
}

// Binding is where a part of the RAM file comes from: anyone who touches a page of it
// first, the kernel takes it from there.
type Binding struct {
	// Offset in the file and size, in bytes.
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"size"`
	// Nodes of the host, in ascending order.
	Nodes  []int        `json:"nodes"`
	Policy MemoryPolicy `json:"policy"`
}

// MemoryPolicy is how the nodes of a Binding are used, by the words of libvirt.
type MemoryPolicy string

// The policies; see mbind(2).
const (
	MemoryStrict     MemoryPolicy = "strict"     // MPOL_BIND
	MemoryPreferred  MemoryPolicy = "preferred"  // MPOL_PREFERRED
	MemoryInterleave MemoryPolicy = "interleave" // MPOL_INTERLEAVE
)

// Restore says which image the VM goes on from.
type Restore struct {
	// Directory of the image, absolute.
	Directory string `json:"directory"`
	// ImageID must be the image's: it may have been replaced since planning.
	ImageID string `json:"imageId"`
	// Lazy maps the image's memory privately instead of filling RAM from it.
	Lazy bool `json:"lazy,omitempty"`
}

// FileKind says what a File is.
type FileKind string

const (
	// FilePath is opened at Path.
	FilePath FileKind = "path"
	// FileMemory is the guest's RAM: the file at Memory.Path, read-write, or,
	// lazily restored, the image's memory, read-only.
	FileMemory FileKind = "memory"
	// FileListen is a listening unix stream socket bound at Path, a name in
	// the VM's run folder, before the VMM starts.
	FileListen FileKind = "listen"
	// FileConnect is a connection to the unix stream socket that somebody else
	// listens on at Path.
	FileConnect FileKind = "connect"
	// FileSocket is such a socket itself, which the VMM connects to through
	// /proc/self/fd, as often as it likes; User is given the right.
	FileSocket FileKind = "socket"
	// FileConsole is the VMM's end of the serial console; the shim has the other.
	FileConsole FileKind = "console"
	// FileReceived is descriptor number Index of those sent with the plan,
	// such as a tap.
	FileReceived FileKind = "received"
	// FileFolder is a folder of the VMM's own, named Path in the VM's state folder:
	// made again for User alone, opened for reading and removed at the end. The VMM
	// makes its sockets there, and reads and writes snapshots.
	FileFolder FileKind = "folder"
	// FileEvents is the writing end of a pipe whose reading end the driver has.
	FileEvents FileKind = "events"
	// FilePair is an end of a pair of connected unix stream sockets. Whose Path is the same, in the plan's
	// or in a companion's Files, has the other end.
	FilePair FileKind = "pair"
	// FileReady is the writing end of a pipe, on which a companion says that it is ready: by any byte.
	FileReady FileKind = "ready"
)

// File is a descriptor that the VMM inherits.
type File struct {
	Kind FileKind `json:"kind"`
	// Field of the specification that names it, for error messages:
	// "disks[0].path".
	Field string `json:"field,omitempty"`
	Path  string `json:"path,omitempty"`
	// Template of a FilePath: where there is nothing at Path, it is first made
	// as a copy of this file, mode 0600 and owned by User.
	Template string `json:"template,omitempty"`
	// Index into the descriptors sent with the plan (FileReceived).
	Index int `json:"index,omitempty"`

	// Keep names what was received among all that the VM has: the shim keeps it, and a VMM that takes the first one's
	// place gets the same. Empty: such a VMM gets another, which is received with its plan.
	Keep string `json:"keep,omitempty"`

	// Write opens the file read-write, else read-only.
	Write bool `json:"write,omitempty"`
	// Shared: other VMs may write to the disk at the same time, so that nothing here keeps them off. A shim that
	// doesn't know this field does.
	Shared bool `json:"shared,omitempty"`
	// Direct opens with O_DIRECT where the filesystem can.
	Direct bool `json:"direct,omitempty"`
	// Reopened files are opened again by the VMM through /proc/self/fd, where
	// the kernel checks permissions again: what User could not read is handed
	// over as a sealed copy in memory.
	Reopened bool `json:"reopened,omitempty"`
	// Named: that copy is a file in the VM's state folder, removed at the end, as
	// Landlock can't allow a VMM what has no name; and what was received is copied
	// there always.
	Named bool `json:"named,omitempty"`
	// Granted: User is given the right to open this very file, for writing too with
	// Write, for as long as the VMM runs: it opens the file again, also when the
	// guest is reset.
	Granted bool `json:"granted,omitempty"`
	// ByName: the VMM opens it by Path, so that User must get through the folders
	// above; that it can't is an error.
	ByName bool `json:"byName,omitempty"`
	// Disk is what the image must be; nil: not a disk image.
	Disk *disk.Expectation `json:"disk,omitempty"`
	// DiskName names a writable disk whose identity belongs to a memory image.
	DiskName string `json:"diskName,omitempty"`
	// PartOf is the same of a file that is only read: the image of a read-only disk
	// (Layer 0), or the nth backing file of a disk (Layer n). A shim that doesn't know
	// these fields leaves such files out of its images.
	PartOf string `json:"partOf,omitempty"`
	Layer  int    `json:"layer,omitempty"`
	// Identity that the file must still have (a restore); nil: any.
	Identity *disk.Identity `json:"identity,omitempty"`
}

// String is the field and the path, for error messages: "disks[0].path: /srv/a.img".
func (f File) String() string {
	switch {
	case f.Field == "":
		return f.Path
	case f.Path == "":
		return f.Field
	}
	return f.Field + ": " + f.Path
}
