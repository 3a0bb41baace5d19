// Package wire is what a cluster and its node's first process say to each
// other: JSON values, requests on the process's standard input, and on its
// standard output one answer for each, in order, with processes' ends between.
package wire

// Request is one of its members.
type Request struct {
	Setup  *Setup   `json:",omitempty"`
	Start  *Process `json:",omitempty"`
	Signal *Signal  `json:",omitempty"`
}

// Setup makes the node from bare namespaces. It comes first, and once.
type Setup struct {
	Hostname string
	// Interface is in the namespace already; it gets Addresses, in CIDR notation,
	// and the way to all else is through Gateway.
	Interface string
	Addresses []string
	Gateway   string
	// Routes are ways through others.
	Routes []Route
	// Service is one more address of the node itself, without a length; empty: none.
	Service string
	// Binds are made in order.
	Binds []Bind
	// Copies are files of /proc/sys that the node gets copies of, in the folder
	// CopiesIn, for the kubelet to write to: they are the whole machine's.
	Copies   []string
	CopiesIn string
}

// Bind puts a folder or file in another's place. Both are there.
type Bind struct{ From, To string }

// Route is the way to addresses, in CIDR notation, through one.
type Route struct{ To, Via string }

// Process is started with its output appended to Log.
type Process struct {
	Name, Log string
	Args      []string
}

// Signal is sent to a process that was started under the name. It is no error
// if that has just ended.
type Signal struct {
	Name   string
	Signal int
}

// Reply is an answer, or the end of a process if it has a name.
type Reply struct {
	// Error is empty if what was asked for is done.
	Error string `json:",omitempty"`
	// Ended is the name of a process that has.
	Ended string `json:",omitempty"`
	// How it did: an exit status or a signal.
	How string `json:",omitempty"`
}
