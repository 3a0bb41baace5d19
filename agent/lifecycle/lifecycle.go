// Package lifecycle is the table of a VM's states: what may be asked of a VM
// in which state, and which state may follow which.
package lifecycle

import (
	"slices"
	"strings"

	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// State is the API's.
type State = nodev1.State

// The states, shorter.
const (
	Created   = nodev1.State_STATE_CREATED
	Starting  = nodev1.State_STATE_STARTING
	Running   = nodev1.State_STATE_RUNNING
	Paused    = nodev1.State_STATE_PAUSED
	Saving    = nodev1.State_STATE_SAVING
	Saved     = nodev1.State_STATE_SAVED
	Restoring = nodev1.State_STATE_RESTORING
	Stopping  = nodev1.State_STATE_STOPPING
	Stopped   = nodev1.State_STATE_STOPPED
	Crashed   = nodev1.State_STATE_CRASHED
)

// Name is the state's word for people: "running".
func Name(s State) string { return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_")) }

// Live says that a VM in this state has a VMM, or is about to.
func Live(s State) bool {
	switch s {
	case Starting, Running, Paused, Saving, Restoring, Stopping:
		return true
	}
	return false
}

// Operation is what is asked of a VM that exists.
type Operation string

// The operations.
const (
	Start   Operation = "start"
	Restore Operation = "restore"
	Pause   Operation = "pause"
	Resume  Operation = "resume"
	Reset   Operation = "reset"
	Resize  Operation = "resize"
	Attach  Operation = "attach"
	Detach  Operation = "detach"
	Save    Operation = "save"
	Stop    Operation = "stop"
	Kill    Operation = "kill"
	Delete  Operation = "delete"
	Console Operation = "console"
	Display Operation = "display"
	Freeze  Operation = "freeze"
	Reboot  Operation = "reboot"
	Suspend Operation = "suspend"
	Renew   Operation = "renew"
	Inspect Operation = "inspect"
	Dial    Operation = "dial"
)

// Verdict is what is to be done about an operation.
type Verdict int

const (
	Refuse Verdict = iota
	Do
	// Already: it is as asked, there is nothing to do.
	Already
	// Wait for the operation that is under way, and look again.
	Wait
)

// rule is what an operation does in the states that it does not refuse, and
// the advice where it refuses.
type rule struct {
	verdicts map[State]Verdict
	advice   string
	onNode   contract.Advice
}

func rules() map[Operation]rule {
	return map[Operation]rule{
		Start: {
			verdicts: map[State]Verdict{Created: Do, Stopped: Do, Crashed: Do, Saved: Do},
		},
		Restore: {
			verdicts: map[State]Verdict{Created: Do, Stopped: Do, Crashed: Do, Saved: Do},
			advice:   "stop or kill it before restoring it; beside it, an image without writable disks can be restored as another VM",
			onNode:   contract.Advice("--name NAME --new-identity"),
		},
		// The record may be behind the VMM, which alone knows whether a guest runs.
		Pause: {
			verdicts: map[State]Verdict{Running: Do, Paused: Do},
			advice:   "only a running VM can be paused",
		},
		Resume: {
			verdicts: map[State]Verdict{Paused: Do, Running: Do},
			advice:   "only a paused VM can be resumed",
		},
		Reset: {
			verdicts: map[State]Verdict{Running: Do, Paused: Do},
			advice:   "only a running or paused VM can be reset",
		},
		Resize: changes(),
		Attach: changes(),
		Detach: changes(),
		Save: {
			verdicts: map[State]Verdict{Running: Do, Paused: Do},
			advice:   "only a running or paused VM can be saved",
		},
		Stop: {
			verdicts: map[State]Verdict{
				Running: Do, Paused: Do, Stopping: Wait,
				Created: Already, Stopped: Already, Crashed: Already, Saved: Already,
			},
			advice: "wait for that to end, or kill it",
		},
		Kill: {
			verdicts: map[State]Verdict{
				Running: Do, Paused: Do, Starting: Do, Restoring: Do, Saving: Do, Stopping: Do,
				Created: Already, Stopped: Already, Crashed: Already, Saved: Already,
			},
		},
		Delete: {
			verdicts: map[State]Verdict{Created: Do, Stopped: Do, Crashed: Do, Saved: Do},
			advice:   "stop or kill it before deleting it",
		},
		Console: {
			verdicts: map[State]Verdict{Running: Do, Paused: Do, Saving: Do, Stopping: Do},
			advice:   "only a running VM has a console; `logs` shows what it printed",
		},
		Display: {
			verdicts: map[State]Verdict{Running: Do, Paused: Do, Saving: Do, Stopping: Do},
			advice:   "only a running VM has a display",
		},
		Freeze: {
			verdicts: map[State]Verdict{Running: Do},
			advice:   "only the guest of a running VM can be asked",
		},
		Reboot: {
			verdicts: map[State]Verdict{Running: Do},
			advice:   "only the guest of a running VM can be asked to reboot",
		},
		Suspend: {
			verdicts: map[State]Verdict{Running: Do},
			advice:   "only the guest of a running VM can suspend itself to disk",
		},
		Renew: {
			verdicts: map[State]Verdict{Running: Do},
			advice:   "only the VMM of a running VM can be renewed",
		},
		Inspect: {
			verdicts: map[State]Verdict{Running: Do, Stopping: Do},
			advice:   "only the guest of a running VM can be asked",
		},
		Dial: {
			verdicts: map[State]Verdict{Running: Do, Stopping: Do},
			advice:   "only the guest of a running VM answers",
		},
	}
}

// changes is the rule for what changes a VM at once if it runs, and else from its next
// start on.
func changes() rule {
	return rule{
		verdicts: map[State]Verdict{Running: Do, Paused: Do, Created: Do, Stopped: Do, Crashed: Do},
		advice:   "only one that runs, is paused or was stopped can be changed: let a saved one go on first (start)",
	}
}

// StateError says that an operation does not fit the state.
type StateError struct {
	Name      string
	State     State
	Operation Operation
	Advice    string
	// NodeAdvice is for who works on the node.
	NodeAdvice contract.Advice
}

// Error names the VM and its state, and what to do.
func (e *StateError) Error() string { return e.sentence().Error() }

// Faults are the error in parts (contract.FaultsOf).
func (e *StateError) Faults() []contract.Fault { return contract.FaultsOf(e.sentence()) }

func (e *StateError) sentence() error {
	vm, state := contract.ThisVM(e.Name), Name(e.State)
	switch {
	case e.Operation == Start && e.State == Paused:
		return contract.Errorf("%s is paused: resume it", vm)
	case e.Operation == Start && Live(e.State):
		return contract.Errorf("%s is %s already", vm, state)
	case e.Advice != "":
		return contract.Errorf("%s is %s: %s%s", vm, state, e.Advice, e.NodeAdvice)
	}
	return contract.Errorf("%s is %s", vm, state)
}

// Check says what an operation on the VM of that name does in this state. The
// error, with Refuse, is a *StateError.
func Check(name string, op Operation, s State) (Verdict, error) {
	r := rules()[op]
	if v := r.verdicts[s]; v != Refuse {
		return v, nil
	}
	return Refuse, &StateError{Name: name, State: s, Operation: op, Advice: r.advice, NodeAdvice: r.onNode}
}

// follows says which states may follow a state, besides itself.
func follows() map[State][]State {
	gone := []State{Stopped, Crashed}
	with := func(s ...State) []State { return append(s, gone...) }
	return map[State][]State{
		Created: {Starting, Restoring},
		// A start or a restore that fails leaves the VM as it was.
		Starting:  with(Running, Paused, Created, Saved),
		Restoring: with(Running, Paused, Created, Saved),
		Running:   with(Paused, Saving, Stopping, Saved),
		Paused:    with(Running, Saving, Stopping, Saved),
		Saving:    with(Running, Paused, Saved),
		Saved:     {Starting, Restoring},
		Stopping:  with(Running, Paused),
		Stopped:   {Starting, Restoring},
		Crashed:   {Starting, Restoring, Stopped, Saved}, // a shim that was lost ends after all
	}
}

// May says whether one state may follow another.
func May(from, to State) bool { return from == to || slices.Contains(follows()[from], to) }
