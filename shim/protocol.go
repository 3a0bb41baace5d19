// Package shim is the small process that stands between the agent and one
// VMM, and the protocol that the two speak.
//
// The shim outlives the agent. It binds the VMM's sockets, makes the guest's
// RAM, starts the VMM with the least rights, keeps its console and logs, reaps
// it and writes down how it ended; and it copies RAM out to an image and fills
// it in, because a page of memory is charged to anyone who touches it first and
// because a guest must go on when the agent is lost in the middle of a save.
package shim

import (
	"encoding/json"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
)

// Version of the protocol. An agent serves shims of its own and of the
// previous minor version; another major version is refused.
const (
	VersionMajor = 1
	VersionMinor = 6
)

// Names of the sockets and files in a VM's run folder (not kept over a reboot).
const (
	SocketName = "shim.sock" // the shim's own, bound by the agent
	PIDName    = "shim.json" // ShimProcess
	RAMName    = "ram"       // the guest's RAM, in a pod
)

// Names of the files in a VM's state folder (kept over a reboot).
const (
	ConsoleLogName = "console.log"
	VMMLogName     = "vmm.log"
	ShimLogName    = "shim.log"
	ExitName       = "exit.json" // Exit
)

// VMMFolderName is that of the VMM's own folder (plan.FileFolder) in the state
// folder, which a shim that was killed leaves behind.
const VMMFolderName = "vmm"

// A message is a frame: its length in bytes as four bytes, big-endian, then
// JSON. Descriptors (SCM_RIGHTS) come with the frame's first byte.

// Op names a request.
type Op string

const (
	OpHello    Op = "hello"    // Hello → Welcome; first on every connection
	OpDescribe Op = "describe" // Describe → Described; of a shim in a pod (1.1; no arguments before 1.5)
	OpImage    Op = "image"    // none, with one descriptor: the folder of the volume that has the image to restore → Described, with Restore alone filled in (1.5)
	OpLaunch   Op = "launch"   // Launch (+ descriptors) → Launched
	OpSave     Op = "save"     // Save → Prepared; progress on the way
	OpCommit   Op = "commit"   // Commit → Committed; only after a Prepared on this connection
	OpAbort    Op = "abort"    // none → none; ends a launch or save under way on this connection: a launch is undone, after a save the guest goes on
	OpResume   Op = "resume"   // none → none: a guest that has not run since its restore or a save runs, if its disks are as they were then; one that has is left as it is (1.3)
	OpStop     Op = "stop"     // Stop → Exit
	OpKill     Op = "kill"     // Kill → Exit
	OpAttach   Op = "attach"   // Attach (+ descriptors) → none: it is there, or nothing of it is (1.2)
	OpDetach   Op = "detach"   // Detach → none (1.2)
	OpConsole  Op = "console"  // Console → none, with one descriptor: a stream socket
	OpDisplay  Op = "display"  // Display → none, with one descriptor: a stream socket (1.4)
	OpFreeze   Op = "freeze"   // Freeze → none: the guest's file systems are frozen (1.4)
	OpThaw     Op = "thaw"     // none → none: they are not any more (1.4)
	OpProbe    Op = "probe"    // Probe → Probed: the guest's agent is asked (1.4)
	OpRenew    Op = "renew"    // Renew (+ descriptors) → Renewed: another VMM has the guest; after an error the one that had it (Welcome.Renews)
	OpReboot   Op = "reboot"   // Reboot → none: the guest has been asked (1.4)
	OpDial     Op = "dial"     // DialTo → none, with one descriptor: a connected socket (1.4)
	OpDriver   Op = "driver"   // Driver (+ one descriptor) → none: the program of those in Described.Drivers was started, and has the socket
	OpRelease  Op = "release"  // Release → none; a shim without a VMM ends
)

// Request is what the agent sends. Requests on one connection may overlap.
type Request struct {
	ID   uint64          `json:"id"`
	Op   Op              `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
	// Files is the number of descriptors that come with it.
	Files int `json:"files,omitempty"`
}

// Message is what the shim sends: the reply to a request or, with Progress,
// a word on the way to it, or, with ID 0, an Event.
type Message struct {
	ID       uint64          `json:"id,omitempty"`
	Error    *Error          `json:"error,omitempty"`
	Progress *Progress       `json:"progress,omitempty"`
	Event    *Event          `json:"event,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
	Files    int             `json:"files,omitempty"`
}

// Code classifies an Error, so that nobody compares texts.
type Code string

const (
	CodeInvalid      Code = "invalid"      // the request, or a file that it names, is wrong: Field says which
	CodePrecondition Code = "precondition" // not in this state
	CodeSpace        Code = "space"        // too little free space
	CodeDamaged      Code = "damaged"      // an image is not whole
	CodeChangedDisk  Code = "changed-disk" // a disk is not as it was when the image was saved
	CodeVersion      Code = "version"      // a protocol that is not spoken here
	CodeTimeout      Code = "timeout"      // the guest has not done its part in time (1.2)
	CodeBusy         Code = "busy"         // somebody else has it, and keeps it (1.4)
	CodeUnavailable  Code = "unavailable"  // the guest, or its agent, does not answer (1.4)
	CodeCancelled    Code = "cancelled"    // aborted, or its caller has gone
	CodeInternal     Code = "internal"     // anything else: the VMM, the system
)

// Error is how a request failed.
type Error struct {
	Code    Code   `json:"code"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Parts are Field and Message, and what else is known; none: an older shim's.
	Parts []contract.Fault `json:"parts,omitempty"`
}

// NewError is an error with a code, about a field of the request or of the plan's specification; empty: about none.
func NewError(code Code, field string, err error) *Error {
	return &Error{Code: code, Field: field, Message: err.Error(), Parts: contract.FaultsOf(contract.InField(field, err))}
}

// Faults are the error in parts (contract.FaultsOf).
func (e *Error) Faults() []contract.Fault {
	if len(e.Parts) > 0 {
		return e.Parts
	}
	return []contract.Fault{{Field: e.Field, Text: e.Message}}
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Hello opens a connection.
type Hello struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
}

// Welcome answers Hello.
type Welcome struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
	PID   int `json:"pid"`
	// VMMPID is 0 before a launch.
	VMMPID int `json:"vmmPid,omitempty"`
	// Launching: a launch is under way.
	Launching bool `json:"launching,omitempty"`
	// Saving: a save has not been committed yet.
	Saving bool `json:"saving,omitempty"`
	// Damaged: what is wrong with the image that RAM is mapped from; DamagedParts says the same.
	Damaged      string           `json:"damaged,omitempty"`
	DamagedParts []contract.Fault `json:"damagedParts,omitempty"`
	// Exit: the VMM has ended, and the shim is about to.
	Exit *Exit `json:"exit,omitempty"`
	// Renews: the shim knows OpRenew. One from before says nothing.
	Renews bool `json:"renews,omitempty"`
	// Pod is set by a shim in a pod (1.1).
	Pod *Pod `json:"pod,omitempty"`
	// Keep is what came with the launch, or with the last renewal that had any (1.1).
	Keep json.RawMessage `json:"keep,omitempty"`
	// Credentials is how far the guest has its pod's Secrets; nil: there is nothing to say
	// (1.4).
	Credentials *Credentials `json:"credentials,omitempty"`
	// Notes are what came with the last attachment or detachment of each device, in
	// their order (1.2).
	Notes []json.RawMessage `json:"notes,omitempty"`
}

// Credentials is whether a guest has the keys and passwords of its pod's Secrets.
type Credentials struct {
	Synchronized bool `json:"synchronized,omitempty"`
	// Message is why it has not, and Parts says the same.
	Message string           `json:"message,omitempty"`
	Parts   []contract.Fault `json:"parts,omitempty"`
}

// Pod is what a shim in a pod says of its place there. All of it is the pod's
// word, and names nothing that an agent may open.
type Pod struct {
	// RunDir is the path, in the pod, of the folder with its sockets.
	RunDir string `json:"runDir"`
	// RunID is what its exit.json has: nobody has started it.
	RunID string `json:"runId"`
	// StateDir is the path, in the pod, of a folder that outlives the pod; empty: there is
	// none, and the VM's firmware variables are in RunDir.
	StateDir string `json:"stateDir,omitempty"`
}

// Describe asks a shim in a pod which VM it is there for.
type Describe struct {
	// Files are those on which it depends what the agent's own VMMs say of themselves, and Sum is their
	// fingerprint.Content where the agent is. A shim that has the same files need not ask the VMMs beside
	// it. Empty: they are asked (1.5).
	Files []string `json:"files,omitempty"`
	Sum   string   `json:"sum,omitempty"`
}

// Described answers OpDescribe: the VM that a shim in a pod is there for.
type Described struct {
	// Specification is a file's content; its name is for messages.
	Specification     []byte `json:"specification,omitempty"`
	SpecificationName string `json:"specificationName,omitempty"`
	// Restore: the VM goes on from an image.
	Restore *PodRestore `json:"restore,omitempty"`
	// Paused: the guest stays paused once its VMM is up.
	Paused bool `json:"paused,omitempty"`
	// VMMs is what the programs in the pod's image say of themselves, as
	// `vmlet probe --vmms` prints it.
	VMMs json.RawMessage `json:"vmms,omitempty"`
	// SameVMMs: they are the agent's, file by file (Describe.Files), and were not asked (1.5).
	SameVMMs bool `json:"sameVMMs,omitempty"`
	// Drivers are the VMMs that the pod's image has programs for which speak the driver protocol; each is
	// reached by OpDriver. None: an older shim's.
	Drivers []string `json:"drivers,omitempty"`
	// Stack is the virtualisation profile whose image this is, where the pod is there for no VM and its VMMs
	// are to be asked alone; StackError is why vmlet's own could not be.
	Stack      string `json:"stack,omitempty"`
	StackError string `json:"stackError,omitempty"`

	held *share // of the client's room, see Done
}

// PodRestore is the image that a pod's VM goes on from.
type PodRestore struct {
	// Directory is its path in the pod.
	Directory string `json:"directory"`
	// Manifest is the content of its manifest.json, without the sums of its chunks.
	Manifest          []byte `json:"manifest"`
	Lazy              bool   `json:"lazy,omitempty"`
	AllowChangedDisks bool   `json:"allowChangedDisks,omitempty"`
	NewIdentity       bool   `json:"newIdentity,omitempty"`
	// WatchedDevices: the pod's owner has seen that nobody has written to block devices since, which
	// they don't show. The shim alone goes by it.
	WatchedDevices bool `json:"watchedDevices,omitempty"`
	// Attached: the image is in a volume that is not the pod's own. Directory is where it would be if it
	// were, Manifest is empty, and the shim waits for OpImage (1.5).
	Attached bool `json:"attached,omitempty"`
	// Once: the image is marked as used before the guest's first instruction, refused if it is
	// marked, and removed when the guest runs (1.5).
	Once bool `json:"once,omitempty"`
}

// Release ends a shim without a VMM.
type Release struct {
	// Reason why there is none: a shim in a pod says it to the pod's owner (1.1).
	Reason string `json:"reason,omitempty"`
	// Ending is Reason in parts; a shim from before there was one goes by Reason.
	Ending *contract.Ending `json:"ending,omitempty"`
}

// Launch starts the VMM. The reply comes when its monitor answers and, with
// Plan.Restore, when its memory and device state are back; the guest then
// runs, or is paused if Plan.Paused.
type Launch struct {
	// Plan's Companions are of version 1.6.
	Plan *plan.Plan `json:"plan"`
	// Keep is the agent's own: the shim gives it to agents that come later (1.1).
	Keep json.RawMessage `json:"keep,omitempty"`
	// Grace that the guest has to shut down when the shim is asked to end by a
	// signal; 0: none, it is ended at once; nil: what the shim was started with (1.1).
	Grace *time.Duration `json:"grace,omitempty"`
	// Leases are what the guest learns on its interfaces, as long as the VMM runs (1.4).
	Leases []Lease `json:"leases,omitempty"`
}

// Renew starts another VMM beside the one that runs, and has the guest go on there. RAM, disks and taps are the same. If
// the connection closes before the reply, the guest is in the one or the other, and the next Welcome says in which.
type Renew struct {
	// Plan has the VMM wait for a guest, as one of a restore does, and no Restore.
	Plan *plan.Plan `json:"plan"`
	// Keep replaces that of the launch; nil: that stays.
	Keep json.RawMessage `json:"keep,omitempty"`
}

// Renewed answers Renew.
type Renewed struct {
	VMMPID int `json:"vmmPid"`
	// Stopped is how long the guest was stopped.
	Stopped time.Duration `json:"stopped"`
	// Warning is what went wrong when the guest ran again already; empty: nothing.
	Warning string `json:"warning,omitempty"`
}

// Lease is what the guest learns on one interface.
type Lease struct {
	// Device is the interface's, as an Attachment and a Detachment have it.
	Device string `json:"device"`
	// Config says it. The shim adds what its own resolv.conf says.
	Config lease.Config `json:"config"`
	// Index of the first of the interface's sockets among the descriptors sent: there are
	// lease.SocketCount, in the order of lease.Sockets.
	Index int `json:"index"`
}

// Launched answers Launch.
type Launched struct {
	VMMPID int `json:"vmmPid"`
}

// Save stops the guest and writes its image to Directory. The image is whole
// but for its manifest when the reply, Prepared, comes; Commit makes it an
// image and ends or continues the guest. If the connection closes before,
// the guest goes on and the folder is as it was.
type Save struct {
	// Directory is an absolute path; with Attached the name of a folder in the one whose
	// descriptor comes with the request (1.5).
	Directory string `json:"directory"`
	Attached  bool   `json:"attached,omitempty"`
	// Manifest as far as the agent knows it; the shim fills in memory,
	// chunks, sizes, sums and the identity of each disk.
	Manifest memory.Manifest `json:"manifest"`
}

// Prepared answers Save.
type Prepared struct {
	ImageID     string `json:"imageId"`
	MemoryBytes uint64 `json:"memoryBytes"` // written
	StateBytes  uint64 `json:"stateBytes"`
	// FilesBytes is what disks that were made in the pod take in the image (1.5).
	FilesBytes uint64 `json:"filesBytes,omitempty"`
	// Paused: the guest was paused before (1.5).
	Paused bool `json:"paused,omitempty"`
}

// Commit makes an image of what Save prepared.
type Commit struct {
	KeepRunning bool `json:"keepRunning,omitempty"`
}

// Committed answers Commit: the manifest is in place, and the VMM has ended or
// the guest runs again.
type Committed struct {
	// Stopped is how long the guest was paused, as far as it has gone on.
	Stopped time.Duration `json:"stopped"`
	// Exit is how the VMM ended; nil with KeepRunning.
	Exit *Exit `json:"exit,omitempty"`
}

// Stop presses the power button and kills the VMM after Grace.
type Stop struct {
	Grace time.Duration `json:"grace"`
}

// Kill ends the VMM at once.
type Kill struct {
	// Reason, if its launch could not be seen through: a shim in a pod has failed
	// then, and says it to the pod's owner (1.1).
	Reason string `json:"reason,omitempty"`
	// Ending is Reason in parts; a shim from before there was one goes by Reason.
	Ending *contract.Ending `json:"ending,omitempty"`
}

// Refusal is what the pod's owner learns; nil: nothing is wrong.
func (k *Kill) Refusal() *contract.Ending { return refusal(k.Reason, k.Ending) }

// Refusal is what the pod's owner learns; nil: nothing is wrong.
func (r *Release) Refusal() *contract.Ending { return refusal(r.Reason, r.Ending) }

// refusal has the parts of a sentence of an agent that sends no others.
func refusal(reason string, e *contract.Ending) *contract.Ending {
	if e != nil || reason == "" {
		return e
	}
	read := contract.ReadSentence(reason)
	return &read
}

// Attach gives a VMM that runs one more device. If the connection closes before the
// reply, nothing of it stays.
type Attach struct {
	Attachment *plan.Attachment `json:"attachment"`
	// Lease of an interface, until it is detached (1.4). Its device is the attachment's.
	Lease *Lease `json:"lease,omitempty"`
	// Note is the agent's own, and opaque: agents that come later are given it once
	// the device is there.
	Note json.RawMessage `json:"note,omitempty"`
}

// Detach takes a device away, whether it was there from the beginning or was
// attached later. The guest is asked, and has Within to let it go: then the error
// is CodeTimeout. If it does so afterwards, that is an Event.
type Detach struct {
	Detachment *plan.Detachment `json:"detachment"`
	Within     time.Duration    `json:"within"`
	// Note is as in Attach, once the device is gone.
	Note json.RawMessage `json:"note,omitempty"`
}

// Console attaches to the serial console.
type Console struct {
	// Backlog is how many bytes of what was last printed come first.
	Backlog int `json:"backlog,omitempty"`
}

// Display attaches to the guest's display, by VNC (RFC 6143).
type Display struct {
	// Keep: the client that has the display, if one does, keeps it, and the error is
	// CodeBusy. Without it that client is cut off.
	Keep bool `json:"keep,omitempty"`
}

// Freeze has the guest's agent freeze its file systems. The shim has them thawed after
// Timeout, whatever has become of its agent. Freezing again sets the timeout again.
type Freeze struct {
	Timeout time.Duration `json:"timeout"`
}

// Reboot asks the guest to reboot: its agent, or else by the power button, and then it is
// reset once it is off.
type Reboot struct {
	// Button: the guest hears the power button.
	Button bool `json:"button,omitempty"`
}

// Probe asks the guest's agent whether it answers, or has it run a program.
type Probe struct {
	// Command is a program of the guest's and its arguments; empty: the agent is to answer.
	Command []string      `json:"command,omitempty"`
	Timeout time.Duration `json:"timeout"`
	// Liveness: it is asked whether the guest is to be ended. One that is being saved, or brought back,
	// is not.
	Liveness bool `json:"liveness,omitempty"`
}

// Probed answers Probe.
type Probed struct {
	// Frozen: the guest's file systems are frozen, and so its agent runs no program: none
	// was run.
	Frozen bool `json:"frozen,omitempty"`
	// Moving: the guest is being saved, or brought back from an image, and was not asked.
	Moving bool `json:"moving,omitempty"`
	// Code is the program's exit status, 128 and the number of the signal that ended it.
	Code int `json:"code"`
	// Output is the beginning of what it printed, and of what it printed as errors.
	Output string `json:"output,omitempty"`
	Errors string `json:"errors,omitempty"`
}

// DialTo has the shim connect to an address from where it is: in a pod, from inside of it.
type DialTo struct {
	// Network is tcp or udp.
	Network string `json:"network"`
	// Address is IP:PORT.
	Address string        `json:"address"`
	Within  time.Duration `json:"within"`
}

// Driver starts the driver of a VMM, by its name in Described.Drivers, to be asked and to plan. The descriptor is
// that of a connected socket, whose other end the agent keeps to itself. The program ends when the connection does.
type Driver struct {
	Name string `json:"name"`
}

// Progress of a launch or a save; bytes where Total is not 0.
type Progress struct {
	Step  string `json:"step"`
	Done  uint64 `json:"done,omitempty"`
	Total uint64 `json:"total,omitempty"`
}

// Event is what happens unasked.
type Event struct {
	// Exit: the VMM has ended. The shim ends after it.
	Exit *Exit `json:"exit,omitempty"`
	// Damaged: the image that RAM is mapped from is not whole; the guest was
	// paused. DamagedParts says the same.
	Damaged      string           `json:"damaged,omitempty"`
	DamagedParts []contract.Fault `json:"damagedParts,omitempty"`
	// Credentials have come into the guest, or could not (1.4).
	Credentials *Credentials `json:"credentials,omitempty"`
	// Thawed: the guest's file systems are not frozen any more (1.4).
	Thawed bool `json:"thawed,omitempty"`
	// Renewed: another VMM has the guest, though the client that asked for it may have gone.
	Renewed *Renewed `json:"renewed,omitempty"`
	// Note of a detachment that the guest has agreed to after its time was over:
	// the device is gone (1.2).
	Note json.RawMessage `json:"note,omitempty"`
}

// Reason says how a VMM ended.
type Reason string

const (
	ReasonShutdown Reason = "shutdown" // the guest powered off, or Stop made it
	ReasonKilled   Reason = "killed"   // by Kill, or by Stop after its grace period
	ReasonSaved    Reason = "saved"    // its memory is in an image
	ReasonPanicked Reason = "panicked" // the guest panicked
	// ReasonSuspended: the guest wrote its memory to its own disk and powered off (1.5).
	ReasonSuspended Reason = "suspended"
	ReasonFailed    Reason = "failed"  // it never came up
	ReasonCrashed   Reason = "crashed" // anything else
)

// Exit is how a VMM ended; also the file ExitName.
type Exit struct {
	Reason Reason    `json:"reason"`
	Time   time.Time `json:"time"`
	// Code is the exit status, -1 if a signal ended it.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Killed: Stop's grace period was over.
	GraceOver bool `json:"graceOver,omitempty"`
	// LastWords are the last lines that the VMM wrote to its standard error.
	LastWords string `json:"lastWords,omitempty"`
	// Parts are the same in parts, where more is known than the words.
	Parts []contract.Fault `json:"parts,omitempty"`
	// Image that the memory is in (ReasonSaved).
	ImageDirectory string `json:"imageDirectory,omitempty"`
	ImageID        string `json:"imageId,omitempty"`
	// RunID is the --run-id that the agent started the shim with: an exit.json
	// of an earlier run is not taken for this one's.
	RunID string `json:"runId"`
}

// ShimProcess is the file PIDName: how an agent knows a shim that does not
// answer any more. A pid alone is never trusted: StartTime is field 22 of
// /proc/PID/stat, in clock ticks since boot (proc(5)).
type ShimProcess struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
	RunID     string `json:"runId"`
	// BootID is the kernel's (random(4)): a run folder may outlive a reboot, after which
	// another process may have PID and StartTime. Empty: not compared.
	BootID string `json:"bootId,omitempty"`
}
