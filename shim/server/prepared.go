package server

import (
	"context"
	"os"
	"time"

	"github.com/vmlet/vmlet/memory"
)

// prepared is a save, of which only the manifest is missing.
type prepared struct {
	owner     *conn
	directory string   // as the request names it
	parent    *os.File // the folder that directory is a name in; nil: it is a path
	image     *memory.Writer
	manifest  *memory.Manifest
	hanging   <-chan error // is sent to by what was left behind at the image; nil: nothing was
	ran       bool         // the guest ran before
	since     time.Time    // when it was stopped

	filesBytes uint64      // of disks that were made in the pod
	expire     *time.Timer // for an agent that does nothing any more
}

// onDisk does f, which works at the image, and doesn't wait for its end when ctx ends
// first: out of a write to a disk that doesn't answer no thread can be got. The rest of
// the save is then not to touch the image before clear.
func (p *prepared) onDisk(ctx context.Context, f func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		p.hanging = done
		return context.Cause(ctx)
	}
}

// closeBehind closes a folder's descriptor without waiting: its disk may not answer.
func closeBehind(parent *os.File) {
	if parent != nil {
		go parent.Close()
	}
}
