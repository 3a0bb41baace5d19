package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vmlet/vmlet/internal/untree"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// removeTime bounds the removal of a folder that the VMM has filled; the rest is for
// the agent, or the next launch.
const removeTime = time.Minute

// makeFolder makes the VMM's own folder, in place of one that is left over.
func (o *opener) makeFolder(f *plan.File) (_ *os.File, err error) {
	if f.Path != shim.VMMFolderName || o.folder != nil {
		return nil, fmt.Errorf("%q: a plan has one folder, with the name %q", f.Path, shim.VMMFolderName)
	}
	state, err := os.OpenRoot(o.stateDir)
	if err != nil {
		return nil, err
	}
	o.undo.Push(state.Close)
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), removeTime)
		defer cancel()
		return untree.RemoveAll(ctx, state, f.Path)
	}
	if err = remove(); err == nil {
		err = state.Mkdir(f.Path, 0o700)
	}
	if err != nil {
		return nil, err
	}
	o.undo.Push(remove)
	if o.folder, err = state.OpenRoot(f.Path); err != nil {
		return nil, err
	}
	o.undo.Push(o.folder.Close)
	dir, err := o.folder.Open(".")
	if err != nil {
		return nil, err
	}
	o.own = append(o.own, dir)
	return dir, o.give(dir)
}

// makeEvents makes the pipe that the VMM tells of events by.
func (o *opener) makeEvents() (*os.File, error) {
	if o.events != nil {
		return nil, errors.New("the plan has two pipes for events")
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.events = out
	o.own = append(o.own, in)
	// The driver closes it, if it comes to that.
	o.undo.Push(func() error { out.Close(); return nil })
	return in, nil
}

// makeReady makes the pipe on which a companion says that it is ready.
func (o *opener) makeReady() (*os.File, error) {
	if o.ready != nil {
		return nil, errors.New("a companion has two pipes to say that it is ready")
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.ready = out
	o.own = append(o.own, in)
	o.undo.Push(out.Close)
	return in, nil
}
