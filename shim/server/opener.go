package server

import (
	"os"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// opener opens the files of one plan.
type opener struct {
	plan     *plan.Plan
	run      *rundir.Dir
	received []*os.File
	ram      *os.File // shared RAM, or the image's memory
	console  *os.File
	stateDir string
	lock     string        // what shims lock to change access lists
	sockets  string        // the folder of files that other containers hand out; empty: there is none
	volumes  []string      // the folders of files that others may write to, too
	moved    []memory.File // what the image has brought from another pod
	watched  bool          // nobody has written to block devices since the image was saved
	pairs    *pairs        // of the plan's processes; nil: there are none
	undo     *undo.Stack   // what stays for as long as the VMM runs
	// renewal is set for a VMM that takes another one's place; nil: it takes none's.
	renewal *inherited

	files    []*os.File    // the VMM's, in order
	own      []*os.File    // those of them that are closed here once it runs
	disks    []watchedDisk // stay open
	folder   *os.Root      // the VMM's own; nil: it has none
	events   *os.File      // the reading end of its events; nil: it has none
	ready    *os.File      // the reading end of a companion's FileReady; nil: it has none
	buffered []int         // those without O_DIRECT that were to have it
}

// release closes what only the VMM needs.
func (o *opener) release() {
	for _, f := range o.own {
		f.Close()
	}
	o.own = nil
}

// give makes a file the VMM's user's.
func (o *opener) give(f *os.File) error {
	if u := o.plan.User; u != nil {
		return f.Chown(int(u.UID), int(u.GID))
	}
	return nil
}
