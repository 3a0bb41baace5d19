package place

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
)

// Shim is the agent's connection to one shim: a *shim.Client. It is made of what its users
// need of it.
type Shim interface {
	Connection
	Launcher
	Saver
	Plugger
	Guest
	Ender
}

// Connection is what a shim says unasked, and what it has.
type Connection interface {
	// Welcome is what the shim said when the connection was made.
	Welcome() shim.Welcome
	// Describe is for shims in pods.
	Describe(ctx context.Context, args shim.Describe) (*shim.Described, error)
	// OpenImage gives such a shim the volume with the image that its VM goes on from.
	OpenImage(ctx context.Context, volume *os.File) (*shim.Described, error)
	// Events is closed when the connection is lost.
	Events() <-chan shim.Event
	// Console connects to the serial console; up to backlog bytes of what was last printed
	// come first.
	Console(ctx context.Context, backlog int) (net.Conn, error)
	// Driver starts a VMM's driver in the shim's pod with its end of a connection, which stays the caller's.
	Driver(ctx context.Context, name string, end *os.File) error
	// Dial connects to an address from where the shim is.
	Dial(ctx context.Context, d shim.DialTo) (net.Conn, error)
	Close() error
}

// Launcher has a shim start its VMM, and lets the guest run.
type Launcher interface {
	// Launch starts the VMM. After an error nothing of it is left; after the end of ctx the
	// error is nil if the VMM was up by then.
	Launch(ctx context.Context, l shim.Launch, files []*os.File, progress func(shim.Progress)) (*shim.Launched, error)
	// Resume lets a guest run that has not since its restore or a save, if its disks are as
	// they were then. A guest that has run since is left as it is.
	Resume(ctx context.Context) error
	// Renew has another VMM take the place of the one that runs. After an error the guest goes on in the one that ran,
	// unless the VM has ended; after the end of ctx the error is nil if the other had the guest by then.
	Renew(ctx context.Context, r shim.Renew, files []*os.File, progress func(shim.Progress)) (*shim.Renewed, error)
}

// Saver has a shim write an image, in two phases.
type Saver interface {
	// Save stops the guest and writes its image, whole but for the manifest. Commit or Abort
	// has to follow, on this connection. volume, which stays the caller's, goes with
	// s.Attached.
	Save(ctx context.Context, s shim.Save, volume *os.File, progress func(shim.Progress)) (*shim.Prepared, error)
	// Commit writes the manifest. After an error other than a *shim.Error it is unknown
	// whether it did.
	Commit(ctx context.Context, c shim.Commit) (*shim.Committed, error)
	// Abort removes what Save wrote and lets the guest go on. It returns when that is so.
	Abort(ctx context.Context) error
}

// Plugger has a shim's VMM take devices and give them back.
type Plugger interface {
	// Attach adds a device. If ctx ends first, it is undone unless it is complete.
	Attach(ctx context.Context, a shim.Attach, files []*os.File) error
	// Detach asks the guest to release a device, and waits as long as the request says.
	Detach(ctx context.Context, d shim.Detach) error
}

// Guest is what a shim does with its guest, and what its people see of it.
type Guest interface {
	// Display attaches to the display by VNC, in the place of its present client; with keep that is
	// CodeBusy.
	Display(ctx context.Context, keep bool) (net.Conn, error)
	// Freeze has the guest's agent freeze its file systems; the shim has them thawed when the
	// time is over.
	Freeze(ctx context.Context, timeout time.Duration) error
	// Thaw ends that.
	Thaw(ctx context.Context) error
	// Reboot asks the guest to reboot; button: it hears the power button.
	Reboot(ctx context.Context, button bool) error
}

// Ender ends a shim's VMM, and the shim with it.
type Ender interface {
	// Stop presses the power button, and kills the VMM when the grace period is over.
	Stop(ctx context.Context, grace time.Duration) (*shim.Exit, error)
	// Kill ends the VMM at once.
	Kill(ctx context.Context) (*shim.Exit, error)
	// Fail is Kill after a launch that failed; a shim in a pod says why.
	Fail(ctx context.Context, why contract.Ending) (*shim.Exit, error)
	// Release ends a shim that has started no VMM.
	Release(ctx context.Context, why *contract.Ending) error
}

// Shims starts shims and finds those that run.
type Shims interface {
	// Start starts a shim and returns its pid. ctx is for the start only. After an error no
	// shim is left.
	Start(ctx context.Context, o shim.StartOptions) (Shim, int, error)
	// Dial connects to the shim of a run directory.
	Dial(ctx context.Context, runDir string) (Shim, error)
	// DialSocket connects to a socket of a VM's run folder by its name.
	DialSocket(ctx context.Context, runDir, name string) (net.Conn, error)
	// Process is the shim that a run folder speaks of. The error wraps
	// fs.ErrNotExist if it speaks of none, os.ErrProcessDone if it has ended.
	Process(runDir string) (ShimProcess, error)
}

// ShimProcess is one very process, which another with its pid is not taken for.
type ShimProcess interface {
	// PID is 0 if it is not known.
	PID() int
	// Alive is true as long as the process may be running.
	Alive() bool
	// Wait returns when it has ended.
	Wait(ctx context.Context) error
	// Kill of a process that has ended is no error.
	Kill() error
	Close() error
}

// Host is what the agent makes of the machine for a VM: a *host.Host.
type Host interface {
	Users
	Cgroups
	Access
	Taps
	Memory
	// Sweep takes back what no VM has; keep says which have something.
	Sweep(keep func(vm string) bool) ([]string, error)
}

// Users are user ids, one for each VM that runs.
type Users interface {
	// TakeUser gives a VM a user id that no other has.
	TakeUser(vm string) (uint32, error)
	// ClaimUser notes the user id of a VM that runs already.
	ClaimUser(uid uint32, vm string) error
	// ReleaseUser makes the user id available to other VMs.
	ReleaseUser(uid uint32, vm string)
}

// Cgroups are those of VMs, and what runs in them.
type Cgroups interface {
	// PlanCgroup names a VM's cgroup, and makes nothing. grace is how long the guest may take
	// to shut down.
	PlanCgroup(vm string, grace time.Duration) host.Cgroup
	// MakeCgroup makes it. A failure is logged, and is an error only where cgroups are
	// required.
	MakeCgroup(c host.Cgroup) error
	// StartInCgroup reports whether the process that start has started is in it.
	StartInCgroup(c host.Cgroup, start func(*syscall.SysProcAttr) (pid int, err error)) (joined bool, err error)
	// EndProcesses kills what still runs as a VM's user in its cgroup, or at all if the
	// cgroup has no paths, and waits until ctx ends for its end.
	EndProcesses(ctx context.Context, c host.Cgroup, uid uint32) error
	// RemoveCgroup deletes it. It is an error if a process is in it.
	RemoveCgroup(c host.Cgroup) error
}

// Access is what users are given of devices and files.
type Access interface {
	// GrantDevice lets a user read and write a device, and reports whether RevokeDevice has
	// anything to take back.
	GrantDevice(path string, uid uint32) (bool, error)
	// RevokeDevice takes it back.
	RevokeDevice(path string, uid uint32) error
	// RevokeFile takes back what a shim has given a user, with a lock held; that the
	// file is gone is no error.
	RevokeFile(path, lock string, uid uint32) error
}

// Taps are network interfaces of the host.
type Taps interface {
	// OpenTap opens a tap and returns its name; the file is the caller's.
	OpenTap(r host.TapRequest) (*os.File, string, error)
	// RemoveTaps deletes what there still is of those that were made for an owner.
	RemoveTaps(owner string) error
	// NoteTap reads how a tap is that is the administrator's, and RestoreTap puts it back.
	NoteTap(device string) (host.TapNote, error)
	RestoreTap(n host.TapNote) error
}

// Memory is where guests' RAM is.
type Memory interface {
	// MemoryPath is where a VM's RAM file is made; pageSize in bytes, 0 for
	// ordinary pages.
	MemoryPath(vm, id string, pageSize uint64) (string, error)
	// RemoveMemory deletes a RAM file; it is no error if there is none.
	RemoveMemory(path string) error
	// MemoryRoom is the size in bytes of what ordinary RAM files are in.
	MemoryRoom() uint64
}
