package saves

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

const (
	// suspendPatience is how long a guest's agent may take to begin to suspend its guest.
	suspendPatience = time.Minute
	// undoPatience is how long an agent may take to undo a save, and undoInterval how often it is
	// asked whether it has.
	undoPatience = 5 * time.Second
	undoInterval = 50 * time.Millisecond
	// maxWords bounds what is kept of an agent's error, in bytes: a node may be taken over.
	maxWords = 1024
)

// ask calls the agent, and waits for the end. A save has no time limit: it takes as long as the
// guest's memory and the volume make it, and anyone who waits can cancel it. progress is called whenever
// it has come further.
func (s *Saves) ask(ctx context.Context, vm types.NamespacedName, pod string, r Request, progress func()) (*nodev1.SaveResult, error) {
	agent, err := s.options.Client(r.Node, r.UID)
	if err != nil {
		return nil, err
	}
	if len(r.Watched) > 0 {
		// Nothing is begun on the node without it, so that no error of it leaves the save open.
		if err := s.options.Watch(ctx, vm, r); err != nil {
			return nil, bounded(status.Error(codes.FailedPrecondition, err.Error()))
		}
	}
	if r.suspends() {
		ctx, cancel := context.WithTimeout(ctx, suspendPatience)
		defer cancel()
		_, err := agent.SuspendVM(ctx, &nodev1.SuspendVMRequest{Name: pod})
		return nil, bounded(err)
	}
	result, err := save(ctx, agent, &nodev1.SaveVMRequest{Name: pod, Directory: r.Directory, AttachmentPodUid: string(r.Attachment)}, progress)
	return result, bounded(err)
}

// cutOff: the agent has not said how the call ended.
func cutOff(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.Unavailable, codes.DeadlineExceeded, codes.Unknown:
		return true
	}
	return false
}

// goesOn asks an agent whether a VM goes on whose save was cut off: it undoes that meanwhile, unless
// it was done.
func (s *Saves) goesOn(ctx context.Context, vm string, r Request) bool {
	ctx, cancel := context.WithTimeout(ctx, undoPatience)
	defer cancel()
	for {
		agent, err := s.options.Client(r.Node, r.UID)
		if err != nil {
			return false
		}
		answer, err := agent.GetVM(ctx, &nodev1.GetVMRequest{Name: vm})
		if err != nil {
			return false
		}
		switch answer.GetVm().GetStatus().GetState() {
		case nodev1.State_STATE_RUNNING, nodev1.State_STATE_PAUSED, nodev1.State_STATE_STOPPING:
			return true
		case nodev1.State_STATE_SAVING:
		default:
			return false
		}
		select {
		case <-time.After(undoInterval):
		case <-ctx.Done():
			return false
		}
	}
}

// save reads the agent's stream to its end. A message that says nothing new is no progress.
func save(ctx context.Context, agent nodev1.NodeServiceClient, r *nodev1.SaveVMRequest, progress func()) (*nodev1.SaveResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := agent.SaveVM(ctx, r)
	if err != nil {
		return nil, err
	}
	var result *nodev1.SaveResult
	var step string
	var done uint64
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && result == nil:
			return nil, errors.New("the agent ended the save without a result")
		case errors.Is(err, io.EOF):
			return result, nil
		case err != nil:
			return nil, err
		}
		if p := m.GetProgress(); p.GetStep() != step || p.GetBytesDone() > done {
			step, done = p.GetStep(), p.GetBytesDone()
			progress()
		}
		if m.GetResult() != nil {
			result = m.GetResult()
		}
	}
}

// bounded cuts an agent's words, and keeps the code and what is wrong in parts.
func bounded(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	text := s.Message()
	short := status.New(s.Code(), strings.ToValidUTF8(text[:min(len(text), maxWords)], ""))
	if parts := faults.OfError(err); len(parts) > 0 {
		if with, err := short.WithDetails(faults.Detail(parts)); err == nil {
			short = with
		}
	}
	return &failure{short}
}

// failure is an agent's error that prints without gRPC's own words.
type failure struct{ status *status.Status }

func (f *failure) Error() string { return f.status.Message() }

// GRPCStatus is what status.Code looks for.
func (f *failure) GRPCStatus() *status.Status { return f.status }
