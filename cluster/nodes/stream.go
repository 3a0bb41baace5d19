package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// headerPatience is how long an agent may take to accept a stream, with connecting.
	headerPatience = 20 * time.Second
	// firstRetry and lastRetry are how long it takes until the next try of a stream, at
	// first and at most; each is varied by half, so that agents that were lost together
	// don't come back together.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
	// messageRate and messageBurst are how many messages a second are read of one agent, and
	// at once. More wait at the agent's, which sends the newest state alone.
	messageRate  = 20
	messageBurst = 2 * maxVMs
	// maxWords bounds what is quoted of an agent's error, in bytes.
	maxWords = 512
)

// dial makes the client of a node's agent, unless there is one; a.mu is held. It connects
// when it is used.
func (a *Agents) dial(n *node) (err error) {
	if n.conn == nil {
		n.conn, err = newConn(a.tls, n.name, n.endpoint)
	}
	return err
}

// stream listens to one agent.
type stream struct {
	agents *Agents
	node   *node
	client nodev1.NodeServiceClient
	log    *slog.Logger
}

// newRetry returns the waits between tries: twice as long each time, and each between half
// as long and half as long again.
func newRetry() *wait.Backoff {
	return &wait.Backoff{Duration: firstRetry / 2, Factor: 2, Jitter: 2, Steps: 64, Cap: lastRetry / 2}
}

// run listens until ctx ends, again after each failure.
func (s *stream) run(ctx context.Context) {
	for retry := newRetry(); ; {
		complete, err := s.listen(ctx)
		if ctx.Err() != nil {
			return // others have noted that
		}
		if !s.agents.lost(ctx, s.node) {
			s.log.Warn("the stream of the agent has ended, and its pod is gone", "error", clipped{err})
			return
		}
		if complete {
			retry = newRetry()
		}
		varied := retry.Step()
		s.log.Warn("the stream of the agent has ended: connecting again", "error", clipped{err}, "in", varied)
		select {
		case <-time.After(varied):
		case <-ctx.Done():
			return
		}
	}
}

// listen reports whether the agent has said all, and why that ended.
func (s *stream) listen(ctx context.Context) (complete bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(headerPatience, func() { cancel(fmt.Errorf("no answer for %v", headerPatience)) })
	defer late.Stop()
	watch, err := s.client.WatchVMs(ctx, &nodev1.WatchVMsRequest{})
	if err == nil {
		_, err = watch.Header()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, err
	}
	late.Stop()
	now, pace := newReports(), rate.NewLimiter(messageRate, messageBurst)
	for {
		if err := pace.Wait(ctx); err != nil {
			return now.complete, err
		}
		m, err := watch.Recv()
		if err != nil {
			return now.complete, err
		}
		if err := s.agents.hear(ctx, s.node, now, m); err != nil {
			return now.complete, err
		}
	}
}

// hear takes in what an agent says. What it says at first counts when it has said all.
func (a *Agents) hear(ctx context.Context, n *node, now *reports, m *nodev1.WatchVMsResponse) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx) // another stream may be heard by now
	}
	uid, err := now.take(m)
	switch {
	case err != nil || !now.complete:
		return err
	case !n.current:
		n.current, n.reports = true, now
		a.changes.add(n.pods)
	default:
		if pod, bound := n.pods[uid]; bound {
			a.changes.add(map[types.UID]PodKey{uid: pod})
		}
	}
	return nil
}

// lost notes that a stream has ended, unless it was ended here. It reports whether there is a pod to connect
// to again.
func (a *Agents) lost(ctx context.Context, n *node) (again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() == nil {
		a.lose(n)
		if n.endpoint == (Endpoint{}) {
			a.disconnect(n)
		}
	}
	return ctx.Err() == nil
}

// clipped is an agent's error with a bounded part of its words. It keeps the gRPC status's
// code.
type clipped struct{ err error }

func (c clipped) Error() string {
	text := c.err.Error()
	return text[:min(len(text), maxWords)]
}

// GRPCStatus is what status.Code looks for.
func (c clipped) GRPCStatus() *status.Status {
	s, is := status.FromError(c.err)
	if !is && errors.Is(c.err, context.DeadlineExceeded) {
		s = status.FromContextError(c.err)
	}
	return status.New(s.Code(), c.Error())
}
