package server

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// probeTime bounds the question what the pod's VMMs can do: a QEMU that is asked
// under two accelerators on a busy machine takes some seconds.
const probeTime = time.Minute

// describe tells an agent which VM the pod is there for. VMMs that are not the agent's are asked
// each time: by then the agent has given the pod's user what it was allocated.
func (s *Server) describe(args *shim.Describe) (work, error) {
	if s.o.Pod == nil {
		return nil, fault.Precondition("this shim is in no pod: the agent that started it knows what for")
	}
	return func() (any, error) {
		out := s.o.Pod.Described
		if d := s.o.Pod.Drivers; d != nil {
			out.Drivers = d.Names()
		}
		if out.SameVMMs = hasSame(args); out.SameVMMs {
			return &out, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		var err error
		out.VMMs, err = s.o.Pod.Probe(ctx)
		if err != nil && out.Stack != "" { // what is wrong with the image is what is asked for
			out.VMMs, out.StackError, err = json.RawMessage("[]"), err.Error(), nil
		}
		return &out, err
	}, nil
}

// beginDriver starts a driver of the pod's image for an agent, which asks it and has it plan.
func (s *Server) beginDriver(args *shim.Driver, files []*os.File) (work, error) {
	if s.o.Pod == nil || s.o.Pod.Drivers == nil {
		return nil, fault.Precondition("this shim is in no pod whose image has drivers")
	}
	if len(files) != 1 {
		return nil, fault.New(shim.CodeInvalid, "", "%d descriptors came with the request, and the driver has one", len(files))
	}
	if !slices.Contains(s.o.Pod.Drivers.Names(), args.Name) {
		return nil, fault.New(shim.CodeInvalid, "name", "the image has no driver %.63q", args.Name)
	}
	end, err := duplicate(files[0])
	if err != nil {
		return nil, err
	}
	return func() (any, error) {
		defer end.Close()
		return nil, s.o.Pod.Drivers.Start(args.Name, end)
	}, nil
}

// hasSame says whether the agent's files are in this container, too. One that can't be read is another.
func hasSame(args *shim.Describe) bool {
	if len(args.Files) == 0 {
		return false
	}
	sum, err := fingerprint.Content(args.Files)
	return err == nil && sum == args.Sum
}

// Outcome is how the VMM ended, once Run has returned; nil: none was started, and
// refusal says why if an agent did, else it is nil.
func (s *Server) Outcome() (exit *shim.Exit, refusal *contract.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exit, s.refusal
}

// ImageShown says whether an agent has handed in the volume with the image, whatever is in it.
func (s *Server) ImageShown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.shown
}

// LaunchError is why the last launch failed; nil: it did not, or there was none.
func (s *Server) LaunchError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launchErr
}
