package server

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// probeTime bounds the question what the pod's VMMs can do: a QEMU that is asked
// under two accelerators on a busy machine takes some seconds.
const probeTime = time.Minute

// Pod is what a shim in a pod is there for.
type Pod struct {
	// Described is told as it is, but for VMMs.
	Described shim.Described
	// ReadImage returns what Described.Restore.Manifest is of the image in a volume that is attached, once
	// it has made the disks that the image has; nil: the pod has no such image.
	ReadImage func(ctx context.Context, volume *os.File) (manifest []byte, err error)
	// StateDir is a folder that outlives the pod; empty: there is none.
	StateDir string
	// Sockets is the folder of sockets at which other containers of the pod hand out files: a
	// plan's path in it stands for such a file. Empty: there is none.
	Sockets string
	// Made is the folder of disks that were made in the pod, and are lost with it; empty:
	// there is none.
	Made string
	// Volumes are the folders below which a plan's paths are opened without following links:
	// others may write to what is mounted there.
	Volumes []string
	// AwaitSave is how long a shim that was asked to end waits for a save to begin, before the guest
	// is asked to shut down; 0: not at all.
	AwaitSave time.Duration
	// Credentials are brought into the guest by its agent.
	Credentials []Credential
	// Probe asks what the VMMs in the pod's image can do.
	Probe func(ctx context.Context) (json.RawMessage, error)
}

// sockets is the folder of files that other containers hand out, empty outside of a pod.
func (s *Server) sockets() string {
	if s.o.Pod == nil {
		return ""
	}
	return s.o.Pod.Sockets
}

// volumes are folders below which others may put links, none outside of a pod.
func (s *Server) volumes() []string {
	if s.o.Pod == nil {
		return nil
	}
	return s.o.Pod.Volumes
}

// watchedDevices: the pod's owner has seen that nobody has written to block devices since the image was
// saved.
func (s *Server) watchedDevices() bool {
	return s.o.Pod != nil && s.o.Pod.Described.Restore != nil && s.o.Pod.Described.Restore.WatchedDevices
}

// describe tells an agent which VM the pod is there for. VMMs that are not the agent's are asked
// each time: by then the agent has given the pod's user what it was allocated.
func (s *Server) describe(args *shim.Describe) (work, error) {
	if s.o.Pod == nil {
		return nil, fault.Precondition("this shim is in no pod: the agent that started it knows what for")
	}
	return func() (any, error) {
		out := s.o.Pod.Described
		if out.SameVMMs = hasSame(args); out.SameVMMs {
			return &out, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		var err error
		out.VMMs, err = s.o.Pod.Probe(ctx)
		return &out, err
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
