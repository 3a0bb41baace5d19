package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/machineflags"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

func (a *lifeCommands) createCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create -f FILE...",
		Short: "Make machines of specifications without starting them",
		Long: `Make machines of specifications, in YAML or JSON, without starting them.
Relative paths in a file are relative to the file's folder, those from standard
input to the current one. Creating the same again changes nothing.`,
		Example: "  vmlet create -f web-1.yaml -f web-2.yaml\n  vmlet run web-3 --memory 1Gi --dry-run | vmlet create -f -",
		Args:    arguments(0, 0),
	}
	var files []string
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "a specification's `FILE`, - for standard input (may be repeated)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(files) == 0 {
			return usagef("which specification? -f FILE is wanted")
		}
		// All are read before any is made: a typing error leaves nothing half done.
		var specs []fileSpec
		var failed failures
		for _, file := range files {
			s, err := a.readSpec(cmd.Context(), file)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			specs = append(specs, fileSpec{file, s})
		}
		if err := failed.orNil(); err != nil {
			return err
		}
		return a.create(cmd.Context(), specs)
	}
	return cmd
}

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

func (a *lifeCommands) create(ctx context.Context, specs []fileSpec) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var failed failures
	for _, s := range specs {
		r, err := c.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: s.spec})
		if err != nil {
			failed = append(failed, &fileError{s.file, err})
			continue
		}
		a.printf("%s created\n", r.GetVm().GetSpec().GetName())
	}
	return failed.orNil()
}

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
