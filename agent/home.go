package agent

import (
	"context"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// Placement is where a VM lives: on the node itself (ownHome) or in a pod (podHome).
// It is what differs between the two.
type Placement interface {
	// runDir has the sockets of a run, stateDir its logs and exit.json.
	runDir() string
	stateDir() string
	// keep writes the record down, where it is kept.
	keep(vm *nodev1.VirtualMachine) error
	// process is the shim that runs there. The error wraps fs.ErrNotExist if there
	// is none, os.ErrProcessDone if it has ended.
	process() (ShimProcess, error)
	// dial connects to it.
	dial(ctx context.Context) (Shim, error)
	// giveBack takes back all that a run had of the node. When ctx ends it is not waited
	// any longer for processes that were killed. What an error leaves out is for the next
	// try; until then nobody else gets the run's user id.
	giveBack(ctx context.Context, l *Lease) error
	// sweep does the same of a run whose shim was killed.
	sweep(ctx context.Context) error
	// granting notes which of an attachment's files a run's user is going to be given
	// access to.
	granting(l *Lease, files []plan.File) error
	// hasImage says whether an image is where a save was about to make it.
	hasImage(ref *nodev1.ImageReference) bool
	// refuses says why an operation is not to be had there; nil: it is. checkSave
	// does so of one save.
	refuses(op lifecycle.Operation) error
	checkSave(o saveOptions) error
	ground
}

// ground is what a home gives a VM that is launched.
type ground interface {
	// vmm finds the program by its name, vmms are the names of those that a VM there
	// may be given, the preferred one first.
	vmm(name string) (vmm.VMM, error)
	vmms() ([]string, error)
	// permits says why a VM there can't have a hypervisor; nil: it can.
	permits(h hypervisor.Hypervisor) error
	// take decides what a plan depends on: the request's user, folders and
	// descriptors. What it takes it notes in the lease, which untake gives back.
	take(c *choice, req *vmm.PlanRequest) (*Lease, error)
	untake(l *Lease)
	// refusesSave says why a run there can't be saved, though its VMM could; nil: it can.
	refusesSave(c *choice) error
	// prepare makes what must be there before the record is kept, acquire the
	// rest; it sets the launch's shim. Each pushes its undo.
	prepare() error
	acquire(ctx context.Context, l *launch) error
	// request is what the shim is asked; shimPID and vmmPID are the numbers on
	// this node of processes that the shim names.
	request(c *choice) (shim.Launch, error)
	shimPID(told int) int
	vmmPID(told int) int
}
