// Package control is how the shim speaks to a VMM: what the driver of each kind of VMM implements.
// What not every VMM can do is an interface of its own, which a Machine may have.
package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// ErrMonitorClosed is wrapped by a Machine's errors when the VMM has closed its
// monitor: it has ended, or is about to.
var ErrMonitorClosed = errors.New("the VMM has closed its monitor")

// Dialer connects to the unix socket with this name in the VM's run folder.
type Dialer func(ctx context.Context, name string) (net.Conn, error)

// Driver speaks to one kind of VMM.
type Driver interface {
	// Connect returns when the VMM answers and has been told what the plan has for
	// it. The context is for that only.
	Connect(ctx context.Context, link Link) (Machine, error)
}

// Explainer is a Driver that knows what its VMM's last words are about.
type Explainer interface {
	// Explain returns the words of a VMM that ended instead of coming up, with the
	// plan's files by their names, and what is wrong with which of them, if it knows.
	Explain(p *plan.Plan, words string) (readable string, fault *shim.Error)
}

// Link is what a driver reaches its VMM by.
type Link struct {
	Plan *plan.Plan
	// PID of the VMM.
	PID  int
	Dial Dialer
	// Listen makes a socket for agents in the run folder, which is removed at the
	// end; closing it is the driver's.
	Listen func(name string) (*net.UnixListener, error)
	// Received are the descriptors that came with the plan. They are closed when the
	// launch is over.
	Received []*os.File
	// Events is the reading end of the plan's FileEvents, and the driver's to close;
	// nil: it has none.
	Events *os.File
	// Folder is the plan's FileFolder, for as long as the VM runs; nil: it has none.
	// The VMM may have put anything there.
	Folder *os.Root
	// Buffered are the indexes of the plan's files that were to be opened with
	// O_DIRECT, and whose filesystems can't.
	Buffered []int
	// VCPUs[i] is the CPU that vCPU i has to itself; nil: they have none.
	VCPUs []int
	// Reset is called when the guest has been reset, by a driver of GuestAgents. It does
	// not wait for the VMM; nil: nobody asks.
	Reset func()
	Log   *slog.Logger
}

// Machine is a VMM that runs. Its methods may be called concurrently, but of
// those that move state only one at a time.
type Machine interface {
	// Stop stops the vCPUs and says whether they ran before, also if it then
	// fails. It returns when all I/O has been completed.
	Stop(ctx context.Context) (ran bool, err error)
	// Continue lets the vCPUs run, also after SaveState. That they run already
	// is no error; that they don't in the end is.
	Continue(ctx context.Context) error
	// SaveState writes the state of a stopped VM to a file that is open
	// for writing and empty, without the RAM if that is in a shared file. When
	// it returns, also with an error, the VMM writes there no more. After
	// success it has let go of its disks, until Continue.
	SaveState(ctx context.Context, f *os.File, sharedRAM bool) error
	// Regain takes the disks back after SaveState without letting the vCPUs run.
	Regain(ctx context.Context) error
	// LoadState is the other direction, for a VMM that was started to wait for
	// it. The vCPUs don't run afterwards: the shim looks at the disks first.
	LoadState(ctx context.Context, f *os.File, sharedRAM bool) error
	// PowerDown presses the power button and does not wait.
	PowerDown(ctx context.Context) error
	// Quit asks the VMM to end and does not wait for that.
	Quit(ctx context.Context) error
	// Ending waits until the VMM has closed its monitor, and returns what it
	// said of its end.
	Ending(ctx context.Context) Ending
	// Close ends the connection.
	Close() error
}

// VCPUThreader is a Machine whose vCPUs can have CPUs of their own.
type VCPUThreader interface {
	// VCPUThreads are the ids of the threads that run vCPUs, in the order of the vCPUs; none: there are no
	// threads yet, and the VMM will put them on Link.VCPUs itself.
	VCPUThreads(ctx context.Context) ([]int, error)
}

// Ending is what a VMM says before it ends.
type Ending struct {
	// Shutdown: the guest powered off, or was to reset and may not.
	Shutdown bool
	// Suspended: with Shutdown, it has written its memory to its own disk before.
	Suspended bool
	// Panicked: the guest did.
	Panicked bool
	// Told: someone told the VMM to end, through a monitor.
	Told bool
	// Closed: the VMM had put the VM and its disks away before it ended, so that
	// it doesn't matter how its process did.
	Closed bool
}
