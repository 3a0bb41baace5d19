package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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

// imageAttached: the image that the pod's VM goes on from is in a volume that is not the pod's own.
func (s *Server) imageAttached() bool {
	return s.o.Pod != nil && s.o.Pod.Described.Restore != nil && s.o.Pod.Described.Restore.Attached
}

func (s *Server) beginOpenImage(files []*os.File) (work, error) {
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
func (s *Server) openAttached(volume *os.File) (any, error) {
	s.mu.Lock()
	s.imageShown = true
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

// ImageShown says whether an agent has handed in the volume with the image, whatever is in it.
func (s *Server) ImageShown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.imageShown
}

// findImage opens the image of a plan, in the pod's own file system or in the volume that is attached.
func (s *Server) findImage(p *plan.Plan) (*memory.Image, error) {
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

// cleanUp takes back what a launch needed for itself, and of a guest that runs lets its image go. A disk that does not answer
// keeps no guest from its agent that has gone on from there: what is left is released when the disk answers.
func (s *Server) cleanUp(l *launch, runs bool) error {
	if !runs || !l.once() && !s.imageAttached() {
		return l.meanwhile.Run()
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(l.meanwhile.Run(), s.letImageGo(l)) }()
	timer := time.NewTimer(s.o.ClearWithin)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%s: the disk has not answered for %v: the image that the guest was restored from is released when it does", l.image.Path(), s.o.ClearWithin)
	}
}

// letImageGo has nothing left of the image of a guest that runs now. Anyone who has attached its volume takes
// that away as soon as the agent knows that the guest runs: until then no descriptor of it is to be left.
// The claim goes with the image, so that it is not removed before.
func (s *Server) letImageGo(l *launch) error {
	if !s.imageAttached() {
		go removeUsed(l.log, l.image.Path())
		return nil
	}
	s.mu.Lock()
	volume := s.volume
	s.volume = nil
	s.mu.Unlock()
	if err := volume.Close(); err != nil {
		return fmt.Errorf("close the volume with the image: %w", err)
	}
	return nil
}
