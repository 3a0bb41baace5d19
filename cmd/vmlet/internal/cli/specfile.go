package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/machineflags"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// fileSpec is a specification with the file that it is from.
type fileSpec struct {
	file string
	spec *specv1.VirtualMachineSpec
}

// fileError adds to an error the file that it is about.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.file + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// readSpec reads a specification and makes its paths absolute.
func (a *streams) readSpec(ctx context.Context, file string) (*specv1.VirtualMachineSpec, error) {
	read, name, dir := func() ([]byte, error) { return machineflags.ReadFile(file) }, file, filepath.Dir(file)
	if file == "-" {
		name, dir = "standard input", "."
		read = func() ([]byte, error) { return machineflags.ReadAll(a.Stdin, name) }
	}
	b, err := interruptible(ctx, read)
	if err != nil {
		return nil, err
	}
	s, err := spec.Parse(b, name)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("the current folder: %w", err)
	}
	absolutePaths(s, dir)
	return s, nil
}

// interruptible ends with the context, which reading a terminal or a pipe does not.
func interruptible(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type content struct {
		b   []byte
		err error
	}
	done := make(chan content, 1)
	go func() {
		b, err := read()
		done <- content{b, err}
	}()
	select {
	case c := <-done:
		return c.b, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// absolutePaths makes the paths that a specification names absolute.
func absolutePaths(s *specv1.VirtualMachineSpec, dir string) {
	abs := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	if k := s.GetBoot().GetKernel(); k != nil {
		abs(&k.Path)
		abs(&k.Initrd)
	}
	if t := s.GetDevices().GetTpm(); t != nil {
		abs(&t.Socket)
	}
	for _, d := range s.GetDisks() {
		abs(&d.Path)
		for _, b := range d.GetBackingFiles() {
			abs(&b.Path)
		}
	}
}
