// Package wire is the driver protocol as it travels: messages, calls in both directions on one
// socket, and descriptors that go with them. The adapters on both sides stand on it: vmm/remote
// (the agent's), vmm/remote/driver (the shim's) and vmm/driverkit (the driver's). It must not
// know package vmm, as the shim links no protobuf. docs/driver-protocol.md describes the
// protocol; start reading at Peer.
package wire

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/contract"
)

// Version is the protocol's, of package vmlet.driver.v1.
const Version = 1

// Sockets and descriptors of a driver's process.
const (
	// SocketName is the socket, in the VM's run folder, at which agents reach a VM's driver.
	SocketName = "driver.sock"
	// ConnectionFile is the descriptor of the connection that a driver's process starts with.
	ConnectionFile = 3
	// ListenerFile is that of the listening socket for agents, if ListenVariable is set.
	ListenerFile = 4
	// CookieVariable is set to CookieValue where vmlet starts the program. Started by hand, the program
	// prints what it is.
	CookieVariable = "VMLET_DRIVER"
	CookieValue    = "1"
	ListenVariable = "VMLET_DRIVER_LISTEN"
)

// Features are parts of the protocol that a driver, or one VM of it, may be without.
const (
	FeatureDefaults    = "defaults"
	FeatureValidate    = "validate"
	FeatureRefuseSave  = "refuse-save"
	FeatureSuspend     = "suspend"
	FeaturePlug        = "plug"
	FeatureGuest       = "guest"
	FeatureDisplay     = "display"
	FeatureVCPUThreads = "vcpu-threads"
	FeatureSample      = "sample"
	FeatureResize      = "resize"
	FeatureScreenshot  = "screenshot"
	FeatureExplain     = "explain"
)

// Code is why a call failed, as far as the caller acts on it.
type Code string

// The codes.
const (
	CodeInvalid      Code = "invalid"
	CodeNotFound     Code = "not_found"
	CodeUnsupported  Code = "unsupported"
	CodeCanceled     Code = "canceled"
	CodeDeadline     Code = "deadline"
	CodeVMMClosed    Code = "vmm_closed"
	CodeNoGuestAgent Code = "no_guest_agent"
	CodeGuestKeeps   Code = "guest_keeps"
	CodeGuestCannot  Code = "guest_cannot"
	CodeNoDisplay    Code = "no_display"
	CodeInternal     Code = "internal"
)

// Fault is what is wrong with a field of a specification.
type Fault struct {
	Field   string `json:"field,omitempty"`
	Message string `json:"message,omitempty"`
	UseVMM  string `json:"useVmm,omitempty"`
	// The rest of contract.Fault, but for OtherVM.
	Reason string   `json:"reason,omitempty"`
	Object string   `json:"object,omitempty"`
	Advice string   `json:"advice,omitempty"`
	Fields []string `json:"fields,omitempty"`
}

// FaultsOf are the protocol's of contract's.
func FaultsOf(all []contract.Fault) []Fault {
	out := make([]Fault, len(all))
	for i, f := range all {
		out[i] = Fault{Field: f.Field, Message: f.Text, UseVMM: f.UseVMM, Reason: f.Reason, Object: f.Object, Advice: f.Advice, Fields: f.Fields}
	}
	return out
}

// Part is the fault as contract has it, bounded: a driver may say anything.
func (f Fault) Part() contract.Fault {
	return contract.BoundFaults([]contract.Fault{{
		Field: f.Field, Text: f.Message, UseVMM: f.UseVMM, Reason: f.Reason, Object: f.Object, Advice: f.Advice, Fields: f.Fields,
	}})[0]
}

// Error is how the other side says that a call failed.
type Error struct {
	Code    Code    `json:"code,omitempty"`
	Message string  `json:"message,omitempty"`
	Faults  []Fault `json:"faults,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// MaxMessageText bounds what is kept of an error's message, in bytes.
const MaxMessageText = 8 << 10

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf is the code of an error that the other side sent; empty: it is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// ErrLost is wrapped by the errors of a connection that has ended or that broke the protocol:
// nothing more can be asked of this driver.
var ErrLost = errors.New("the connection to the driver is lost")

// ErrVersion is wrapped by the error of two sides that have no version in common.
var ErrVersion = errors.New("no common version of the driver protocol")

// Choose returns the highest version that both sides speak.
func Choose(ours, theirs []int) (int, error) {
	for _, v := range slices.Backward(slices.Sorted(slices.Values(ours))) {
		if slices.Contains(theirs, v) {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: one side speaks %v, the other %v: use a driver and a vmlet of neighbouring releases", ErrVersion, theirs, ours)
}

// SocketOf refuses names of sockets that a driver has no business with: it asks the
// other end of its connection to open them, with the rights of that process.
func SocketOf(name string) error {
	switch {
	case name == "" || len(name) > 64 || name[0] == '.':
	case name == SocketName, name == "shim.sock":
		return Errorf(CodeInvalid, "socket %q is vmlet's own", name)
	case !slices.ContainsFunc([]byte(name), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	}):
		return nil
	}
	return Errorf(CodeInvalid, "%.80q is no name of a socket: want lower-case letters, digits, '.', '-' and '_'", name)
}

// changes are what events mean, in the order of vmm.Change.
func changes() []string {
	return []string{"", "paused", "resumed", "reset", "panicked", "agent-connected", "agent-disconnected"}
}

// ChangeName is the protocol's name of a vmm.Change.
func ChangeName(change int) string {
	if all := changes(); change >= 0 && change < len(all) {
		return all[change]
	}
	return ""
}

// ChangeOf is the vmm.Change of a name; 0, none, of one that is not known.
func ChangeOf(name string) int { return max(slices.Index(changes(), name), 0) }
