package pairing

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/vmm"
)

// UnusableError says that a VMM can't be used, whatever for.
type UnusableError struct {
	VMM string
	Err error
}

// Error names the VMM, and says why and what to do.
func (e *UnusableError) Error() string { return "vmm: " + e.sentence() }

// Unwrap returns Err.
func (e *UnusableError) Unwrap() error { return e.Err }

// Faults are the error in parts (contract.FaultsOf).
func (e *UnusableError) Faults() []contract.Fault {
	remedy, advice := vmm.Remedy(e.VMM, e.Err)
	f := contract.Fault{Field: "vmm", Text: vmm.Sentence(e.what(), remedy), Advice: string(advice)}
	return []contract.Fault{f}
}

// sentence names the VMM, once, and says what to do.
func (e *UnusableError) sentence() string {
	remedy, advice := vmm.Remedy(e.VMM, e.Err)
	return vmm.Sentence(e.what(), remedy) + advice.String()
}

func (e *UnusableError) what() string {
	text := e.Err.Error()
	if !strings.Contains(text, e.VMM) {
		text = e.VMM + ": " + text
	}
	return text
}

// RefusedError says that a VMM can't run a VM under a hypervisor. Its text is that of
// the error it wraps.
type RefusedError struct {
	VMM, Hypervisor string
	Err             error
}

// Error returns the message of Err.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// Refusal is why one VMM isn't taken.
type Refusal struct {
	VMM string
	Err error
}

// NoneError says of each VMM why it can't run a VM. It wraps what says most: what
// the VM asks for that can't be had, if it is that.
type NoneError struct {
	// Refusals in the order in which VMMs are preferred.
	Refusals []Refusal
}

// Error has a line for each fault of each VMM.
func (e *NoneError) Error() string {
	lines := []string{"no VMM of this node can run it:"}
	for _, r := range e.Refusals {
		lines = append(lines, r.line())
	}
	return strings.Join(lines, "\n")
}

// Faults are the error in parts (contract.FaultsOf): what it says first, then each fault of each VMM.
func (e *NoneError) Faults() []contract.Fault {
	all := []contract.Fault{{Text: "no VMM of this node can run it:"}}
	for _, r := range e.Refusals {
		pair := r.VMM
		if refused := (*RefusedError)(nil); errors.As(r.Err, &refused) {
			pair += " under " + refused.Hypervisor
		}
		for _, f := range contract.FaultsOf(r.Err) {
			f.Text = pair + ": " + f.Text
			all = append(all, f)
		}
	}
	return all
}

// line names the pair, and gives one line to each fault.
func (r Refusal) line() string {
	var refused *RefusedError
	var unusable *UnusableError
	switch {
	case errors.As(r.Err, &refused):
		return "- " + r.VMM + " under " + refused.Hypervisor + ": " + strings.ReplaceAll(refused.Err.Error(), "\n", "\n  ")
	case errors.As(r.Err, &unusable):
		return "- " + unusable.sentence()
	}
	return "- " + r.VMM + ": " + r.Err.Error()
}

// Unwrap returns the refusal that says most.
func (e *NoneError) Unwrap() error {
	for _, r := range e.Refusals {
		if errors.As(r.Err, new(*RefusedError)) {
			return r.Err
		}
	}
	return e.Refusals[0].Err
}

// err leaves out VMMs that are not there if one is, and comes before them: a node with the
// preferred VMM alone gets an error about that alone.
func (e *NoneError) err() error {
	there := 0
	for i, r := range e.Refusals {
		if !(errors.As(r.Err, new(*UnusableError)) && errors.Is(r.Err, fs.ErrNotExist)) {
			there = i + 1
		}
	}
	if there > 0 {
		e.Refusals = e.Refusals[:there]
	}
	if len(e.Refusals) == 1 {
		return e.Refusals[0].Err
	}
	return e
}
