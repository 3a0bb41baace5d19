package server

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// attachedFolder is the folder of a volume that is attached, which came with a request. It is the
// caller's.
func attachedFolder(files []*os.File) (*os.File, error) {
	invalid := func(format string, of ...any) (*os.File, error) {
		return nil, fault.New(shim.CodeInvalid, "directory", format, of...)
	}
	if len(files) != 1 {
		return invalid("%d descriptors came with the request, and the attached volume's folder is one", len(files))
	}
	var st unix.Stat_t
	if err := interrupted.Retry(func() error { return unix.Fstat(int(files[0].Fd()), &st) }); err != nil {
		return nil, os.NewSyscallError("fstat of the volume that is attached", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return invalid("the descriptor that came with the request is no folder's")
	}
	return duplicate(files[0])
}

// source is the image that the VM goes on from, if it goes on from one.
type source struct {
	*session
	shown bool // an agent has handed in the volume with the image; guarded by mu
	// volume is the attached one with the image to restore; nil: none is, or it is not needed any more; guarded by mu.
	volume *os.File
	// reading is held while that image is read, whose manifest is kept.
	reading  sync.Mutex
	manifest []byte
}

// take returns the attached volume, which is the caller's from here on.
func (s *source) take() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	volume := s.volume
	s.volume = nil
	return volume
}

// imageAttached: the image that the pod's VM goes on from is in a volume that is not the pod's own.
func (s *source) imageAttached() bool {
	return s.o.Pod != nil && s.o.Pod.Described.Restore != nil && s.o.Pod.Described.Restore.Attached
}

func (s *source) beginOpenImage(files []*os.File) (work, error) {
	if !s.imageAttached() {
		return nil, fault.Precondition("this shim waits for no image in a volume that is attached")
	}
	volume, err := attachedFolder(files)
	if err != nil {
		return nil, err
	}
	return func() (any, error) { return s.openAttached(volume) }, nil
}

// openAttached reads the image once: an agent that comes after the one that was lost hands in the
// volume again. The shim goes on reading when its agent is lost.
func (s *source) openAttached(volume *os.File) (any, error) {
	s.mu.Lock()
	s.shown = true
	s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	out := *s.o.Pod.Described.Restore
	if s.manifest == nil {
		manifest, err := s.o.Pod.ReadImage(context.Background(), volume)
		if err != nil {
			closeBehind(volume)
			s.mu.Lock()
			s.launchErr = err
			s.mu.Unlock()
			return nil, err
		}
		s.manifest = manifest
		s.mu.Lock()
		s.volume = volume
		s.mu.Unlock()
	} else {
		closeBehind(volume)
	}
	out.Manifest = s.manifest
	return &shim.Described{Restore: &out}, nil
}

// findImage opens the image of a plan, in the pod's own file system or in the volume that is attached.
func (s *source) findImage(p *plan.Plan) (*memory.Image, error) {
	if !s.imageAttached() {
		return memory.Open(p.Restore.Directory)
	}
	s.mu.Lock()
	volume := s.volume
	s.mu.Unlock()
	if volume == nil {
		return nil, fault.Precondition("the volume with the image to restore has not been attached yet")
	}
	return memory.OpenIn(volume, filepath.Base(p.Restore.Directory))
}
