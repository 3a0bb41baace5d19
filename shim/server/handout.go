package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/internal/safeopen"
)

// handoutTime is how long another container may take to hand a file out.
const handoutTime = 30 * time.Second

// open opens what is at a file's path, or takes it from the container that hands it out.
func (o *opener) open(ctx context.Context, f *plan.File) (*os.File, error) {
	if !o.handedOut(f) {
		return o.openPath(f)
	}
	switch {
	case f.Write:
		return nil, contract.Errorf("%s: another container hands it out, for reading only: make the disk read-only, or put an overlay over it", contract.ObjectName(f.Path))
	case f.ByName:
		return nil, contract.Errorf("%s: another container hands it out, and this VMM opens it by its name: use QEMU", contract.ObjectName(f.Path))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, handoutTime, fmt.Errorf("its container has not handed it out within %v: see that container's log", handoutTime))
	defer cancel()
	file, err := filesocket.Receive(ctx, f.Path)
	var said *filesocket.Fault
	if errors.As(err, &said) {
		return nil, fmt.Errorf("its image %w", said)
	}
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ObjectName(f.Path), err)
	}
	if err := safeopen.SetFlag(file, unix.O_NONBLOCK, false); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// handedOut says whether a file's path is a socket at which another container hands it out.
func (o *opener) handedOut(f *plan.File) bool {
	return o.sockets != "" && filepath.Dir(filepath.Clean(f.Path)) == filepath.Clean(o.sockets)
}

// openPath opens a file by its path, without following links if that is in a volume of the pod.
func (o *opener) openPath(f *plan.File) (*os.File, error) {
	for _, folder := range o.volumes {
		if strings.HasPrefix(filepath.Clean(f.Path), filepath.Clean(folder)+"/") {
			return safeopen.Beneath(folder, f.Path, f.Write)
		}
	}
	return safeopen.File(f.Path, f.Write)
}
