// Package place says where VMs live. A Placement finds a VM's shim and gives a launch what it
// needs. OnNode is the placement of VMs on the node itself: each has a user, a cgroup, taps
// and a RAM file, all noted in a Lease before they are made. (The placement of VMs in pods is
// in agent/podvm.) The package must not know the states of VMs, nor the operations on them.
// Start reading at Placement.
package place

import (
	"context"
	"os"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// Placement is where a VM lives: on the node itself (OnNode) or in a pod. It is what
// differs between the two. Some implement Keeper or Container as well.
type Placement interface {
	Site
	Provisioner
}

// Site is what a VM has at its place, whether it runs or not.
type Site interface {
	// RunDir has the sockets of a run, StateDir its logs and exit.json.
	RunDir() string
	StateDir() string
	// Process is the shim that runs there. The error wraps fs.ErrNotExist if there
	// is none, os.ErrProcessDone if it has ended.
	Process() (ShimProcess, error)
	// Dial connects to it.
	Dial(ctx context.Context) (Shim, error)
	// VMM finds a program by its name.
	VMM(name string) (vmm.VMM, error)
	// Refuses says why an operation is not possible there; nil: it is. CheckSave does
	// so of one save.
	Refuses(op lifecycle.Operation) error
	CheckSave(o SaveOptions) error
}

// Attacher is a placement to whose VM volumes can be attached by other pods.
type Attacher interface {
	// Attached returns the folder of the volume that a pod, by its UID, attaches to this VM. It
	// is the caller's to close, and such that no call on it waits for its file system.
	Attached(ctx context.Context, pod string) (*os.File, error)
}

// Provisioner gives a VM that is launched what it needs.
type Provisioner interface {
	// VMMs are the names of those that a VM there may have, the preferred one first.
	VMMs() ([]string, error)
	// Take takes what a run has whatever it is run with, for a choice with an id and a start
	// alone, and notes it in the lease, which Keeper.Untake gives back.
	Take(c *Choice) (*Lease, error)
	// Describe fills in what a plan for a complete specification depends on at that place:
	// the user, directories and descriptors. An error is what the place can't give; the
	// rest is filled in all the same.
	Describe(l *Lease, req *vmm.PlanRequest) error
	// Acquire makes what the choice names and starts or finds the shim. After an error
	// nothing of it is left.
	Acquire(ctx context.Context, c *Choice) (*Acquired, error)
	// Disks are those of a VM of a complete specification, as far as it is known there what files they are.
	Disks(s *specv1.VirtualMachineSpec) []UsedDisk
	// Request is what the shim is asked.
	Request(c *Choice) (shim.Launch, error)
}

// Acquired is what a launch goes on with.
type Acquired struct {
	Shim Shim
	PID  int // of the shim
	// Files go with the plan, in the order in which Descriptors has numbered them. Their
	// holder closes them.
	Files []*os.File
	// Undo takes all else back after a launch that failed, and why it did.
	Undo func(ctx context.Context, why error) error
}

// VhostOpener is a placement whose VMs may have packets moved by the kernel.
type VhostOpener interface {
	// OpenVhost opens what a new VMM of a VM that runs has for that: the numbers are as in vmm.PlanRequest's VhostNet, of
	// the files, which are the caller's. None: it has none.
	OpenVhost(s *specv1.VirtualMachineSpec) (numbers []int, files []*os.File, err error)
}

// Keeper is a placement whose VM's record the agent keeps, and whose runs have something
// of the host.
type Keeper interface {
	// Keep writes the record down.
	Keep(vm *nodev1.VirtualMachine) error
	// HasImage says whether an image is where a save was about to make it.
	HasImage(ref *nodev1.ImageReference) bool
	// Granting notes which of an attachment's files a run's user is going to be given
	// access to.
	Granting(l *Lease, files []plan.File) error
	// Untake gives back what Provisioner.Take has taken.
	Untake(l *Lease)
	// GiveBack takes back all that a run had of the host. When ctx ends it is not waited
	// any longer for processes that were killed. What an error leaves out is for the next
	// try; until then nobody else gets the run's user id.
	GiveBack(ctx context.Context, l *Lease) error
	// Sweep does the same of a run whose shim was killed.
	Sweep(ctx context.Context) error
}

// Container is a placement whose processes are in a container that somebody else made.
type Container interface {
	// Permits says why a VM there can't have a hypervisor; nil: it can.
	Permits(h hypervisor.Hypervisor) error
	// RefusesSave says why a run there can't be saved, though its VMM could; nil: it can.
	RefusesSave(c *Choice) error
	// ShimPID and VMMPID are the numbers on this node of processes that the shim names.
	ShimPID(told int) int
	VMMPID(told int) int
}

// SaveOptions say how and where to a VM is saved.
type SaveOptions struct {
	// Directory is made, and must be absolute; with Attachment it is the name of a folder.
	Directory string
	// Attachment is the UID of the pod by which the volume is attached that the folder is made
	// in; empty: the VM's own place has it.
	Attachment string
	// KeepRunning lets the guest go on afterwards.
	KeepRunning bool
}
