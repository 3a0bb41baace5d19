// Package helper is the process that makes guests' networks for the agent, which has not the
// rights to do it. The agent starts it before it gives up its own (Start), and has its end of
// a socket across its own execve(2) (Inherited). The helper (Run) keeps four capabilities and
// a short list of system calls. What it is asked is a network namespace's descriptor and a
// bounded plan of package podnet; what it answers are descriptors: taps, and sockets for the
// guests' DHCP servers. It must not know pods, VMs or specifications. Start reading at Client.
package helper

import (
	"errors"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/podnet"
)

// Name is the argument that makes vmlet-agent a helper.
const Name = "network-helper"

// Bounds on messages, in bytes.
const (
	maxPlan   = 64 << 10
	maxAnswer = 64 << 10
	// maxReason is what is kept of an error's text.
	maxReason = 2 << 10
)

// filesPerCall are the namespace and the socket for the answer.
const filesPerCall = 2

// answer is the helper's, to a plan, and its first word.
type answer struct {
	Error string `json:"error,omitempty"`
	// Parts are the error in parts.
	Parts []contract.Fault `json:"parts,omitempty"`
	// Passing: the error is a podnet.PassingError.
	Passing bool        `json:"passing,omitempty"`
	Made    podnet.Made `json:"made"`
}

// ErrRefused is wrapped by errors of a helper that can't work on this node at all.
var ErrRefused = errors.New("this node lets no networks be made for guests")

// ErrEnded is wrapped by errors that follow from the helper's end.
var ErrEnded = errors.New("the network helper has ended")
