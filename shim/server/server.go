// Package server is the shim itself: it carries out one plan, keeps what the
// VMM needs, saves and restores it, and writes down how it ended.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// Options are what a shim is started with.
type Options struct {
	RunDir, StateDir, RunID string
	// Listener is the socket SocketName in RunDir, bound by the agent.
	Listener *net.UnixListener
	// Drivers by the name that a plan gives its VMM.
	Drivers map[string]control.Driver
	Log     *slog.Logger
	// Grace that the guest has to shut down when Run's context ends.
	Grace time.Duration
	// PressEvery is how often the power button is pressed until the guest shuts down; 0: every
	// 5 seconds.
	PressEvery time.Duration
	// ConsoleLog and VMMLog bound these logs; zero: logfile.Default.
	ConsoleLog, VMMLog logfile.Limits
	// FirstConnection is how long an agent may take to connect; 0: half a minute.
	FirstConnection time.Duration
	// CommitWithin is how long a saved guest is paused for an agent that
	// neither commits nor aborts; 0: two minutes.
	CommitWithin time.Duration
	// ClearWithin is how long a save that has failed waits for a disk to let it remove
	// what was written, and a guest that has gone on from an image for that to be closed; 0: five seconds.
	ClearWithin time.Duration
	// Linger is how long the shim waits for agents to read how the VMM ended, and for
	// clients of the console to read the last of it;
	// 0: 3 seconds.
	Linger time.Duration
	// CredentialsEvery is between two looks at what a pod's Secrets have for its guest; 0: 5
	// seconds.
	CredentialsEvery time.Duration
	// Console, if set, gets what the guest prints, beside the log. It must not block.
	Console io.Writer
	// ResolvConf has the name servers and search domains that guests are told of;
	// empty: /etc/resolv.conf.
	ResolvConf string
	// Pod is set in a pod: then the shim waits for agents for ever.
	Pod *Pod
}

// callTime bounds one word with a VMM where nobody else sets a limit.
const callTime = 10 * time.Second

// Server is a shim.
type Server struct {
	o Options
	// log names the VM when there is one: it is read by who has found vm, or holds mu.
	// Connections come and go before, and write to o.Log.
	log        *slog.Logger
	run, state *rundir.Dir
	requests   sync.WaitGroup
	ended      chan struct{} // closed when the VMM has ended and that is written down
	released   chan struct{} // closed when there is nothing to stay for

	mu      sync.Mutex
	conns   map[*conn]struct{}
	greeted bool // an agent has connected
	closing bool // nothing is begun any more
	// moved gets a value when an operation begins or ends.
	moved chan struct{}
	// lingering: no request is counted any more.
	lingering bool
	op        *operation       // under way; nil: none
	vm        *vm              // nil: none was launched
	prepared  *prepared        // a save that waits for its commit
	clearing  string           // the folder of a save that is being removed
	damaged   string           // what is wrong with the image that RAM is mapped from
	exit      *shim.Exit       // set before ended is closed
	refusal   *contract.Ending // why no VMM is to be started
	launchErr error            // of the last launch, or of what comes before it
	// credentials is how far the guest has the pod's Secrets; nil: not known yet.
	credentials *shim.Credentials

	damagedAt  time.Time // when that was found
	imageShown bool      // an agent has handed in the volume with the image
	// volume is the attached one with the image to restore; nil: none is, or it is not needed any more.
	volume *os.File
	// reading is held while that image is read, whose manifest is kept.
	reading  sync.Mutex
	manifest []byte
}

// operation is a launch, a save, a commit or an abort: there is one at a time.
type operation struct {
	name   string
	owner  *conn // whose end cancels it; nil: nobody's
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	ending sync.Mutex
	sealed bool // nobody ends it any more
}

// end has the operation end early, unless it is sealed.
func (o *operation) end(why error) {
	o.ending.Lock()
	defer o.ending.Unlock()
	if !o.sealed {
		o.cancel(why)
	}
}

// seal has the operation come to its own end from here on. The error is why it is to end.
func (o *operation) seal() error {
	o.ending.Lock()
	defer o.ending.Unlock()
	if err := context.Cause(o.ctx); err != nil {
		return err
	}
	o.sealed = true
	return nil
}

// New prepares a shim.
func New(o Options) (*Server, error) {
	setDefault(&o.FirstConnection, 30*time.Second)
	setDefault(&o.CommitWithin, 2*time.Minute)
	setDefault(&o.ClearWithin, 5*time.Second)
	setDefault(&o.Linger, 3*time.Second)
	setDefault(&o.Grace, 30*time.Second)
	setDefault(&o.ResolvConf, "/etc/resolv.conf")
	setDefault(&o.PressEvery, 5*time.Second)
	setDefault(&o.CredentialsEvery, 5*time.Second)
	setDefault(&o.ConsoleLog, logfile.Default())
	setDefault(&o.VMMLog, logfile.Default())
	run, err := rundir.Open(o.RunDir)
	if err != nil {
		return nil, err
	}
	state, err := rundir.Open(o.StateDir)
	if err != nil {
		run.Close()
		return nil, err
	}
	return &Server{
		o: o, log: o.Log, run: run, state: state,
		conns:    make(map[*conn]struct{}),
		ended:    make(chan struct{}),
		released: make(chan struct{}),
		moved:    make(chan struct{}, 1),
	}, nil
}

// listLock is the folder of all run folders, which is root's: shims and agents lock it
// to change the access list of a file.
func (s *Server) listLock() string { return filepath.Dir(filepath.Clean(s.o.RunDir)) }

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Run serves until the VMM has ended, or there is none and no agent that could
// launch one. When ctx ends the guest is asked to shut down, and has Grace; before that a
// save is waited for, if Pod says so.
func (s *Server) Run(ctx context.Context) error {
	defer s.run.Close()
	defer s.state.Close()
	if err := s.writeProcess(); err != nil {
		return err
	}
	faultpoint.Reach("shim.run.ready")
	if s.o.Pod == nil {
		first := time.AfterFunc(s.o.FirstConnection, s.giveUpWaiting)
		defer first.Stop()
	}
	accepting := make(chan error, 1)
	go func() { accepting <- s.accept() }()
	select {
	case <-s.ended:
	case <-s.released:
	case <-ctx.Done():
		if !s.awaitSave() {
			s.terminate()
		}
	}
	s.o.Listener.Close()
	err := <-accepting
	s.linger()
	return errors.Join(err, s.run.Remove(shim.SocketName), s.run.Remove(shim.PIDName))
}

func (s *Server) writeProcess() error {
	self, err := shim.Self(s.o.RunID)
	if err != nil {
		return err
	}
	return writeJSON(s.run, shim.PIDName, self)
}

func writeJSON(dir *rundir.Dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", dir.Path(name), err)
	}
	return dir.WriteFile(name, append(b, '\n'), 0o600)
}

func (s *Server) accept() error {
	for {
		c, err := s.o.Listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// Out of descriptors, most likely: those who wait are served when
			// there are some again.
			s.o.Log.Error("accept", "error", err)
			if !errors.Is(err, unix.ECONNABORTED) && !s.pause(time.Second) {
				return nil
			}
			continue
		}
		if err := s.checkPeer(c); err != nil {
			s.o.Log.Warn("connection refused", "error", err)
			c.Close()
			continue
		}
		s.serve(c)
	}
}

// pause waits, unless the shim ends.
func (s *Server) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ended:
	case <-s.released:
	}
	return false
}

// checkPeer lets in root and this process's own user. In a pod the socket's mode
// does that: in a user namespace of its own, root outside has no number here.
func (s *Server) checkPeer(c *net.UnixConn) error {
	if s.o.Pod != nil {
		return nil
	}
	peer, err := unixsocket.Peer(c)
	if err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d is neither root nor of user %d", peer.Pid, peer.Uid, os.Geteuid())
	}
	return nil
}

// begin starts an operation; s.mu is held.
func (s *Server) begin(name string, owner *conn) (*operation, error) {
	if s.op != nil {
		return nil, fault.Precondition("another request is under way, %s: try again when it is over", s.op.name)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s.op = &operation{name: name, owner: owner, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	s.move()
	return s.op, nil
}

// finish ends the operation after last, which runs with s.mu held.
func (s *Server) finish(op *operation, last func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last()
	s.over(op)
}

// over ends the operation; s.mu is held.
func (s *Server) over(op *operation) {
	s.op = nil
	s.move()
	op.cancel(nil)
	close(op.done)
	s.checkIdle()
}

// checkIdle ends a shim that nobody can give anything to do; s.mu is held.
func (s *Server) checkIdle() {
	if s.o.Pod == nil && s.greeted && len(s.conns) == 0 && s.op == nil && s.vm == nil {
		s.release()
	}
}

// release ends a shim without a VMM; s.mu is held.
func (s *Server) release() {
	if !s.closing {
		s.closing = true
		close(s.released)
	}
}

func (s *Server) giveUpWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.greeted {
		s.o.Log.Warn("no agent has connected: ending", "after", s.o.FirstConnection)
		s.greeted = true
		s.checkIdle()
	}
}

// terminate ends everything in good order.
func (s *Server) terminate() {
	s.o.Log.Info("asked to end")
	v := s.abortAll(fault.ErrSignal)
	if v == nil {
		return
	}
	s.mu.Lock()
	grace := s.o.Grace
	if v.grace != nil {
		grace = max(0, *v.grace)
	}
	s.stopWithin(v, grace)
	s.mu.Unlock()
	s.log.Info("asking the guest to shut down", "grace", grace)
	s.press(v)
	s.pressAgain(v)
}

// abortAll ends what is under way, so that nothing else begins either, and
// returns the VMM that runs, nil if there is none.
func (s *Server) abortAll(why error) *vm {
	for {
		s.mu.Lock()
		s.closing = true
		op := s.op
		if op == nil {
			v, p := s.vm, s.prepared
			if p == nil {
				s.mu.Unlock()
				return v
			}
			op = s.takePrepared()
			s.mu.Unlock()
			s.discard(op, v, p)
			continue
		}
		s.mu.Unlock()
		op.end(why)
		<-op.done
	}
}

// linger lets those who are connected, to the shim and to the console, read what there
// is for them.
func (s *Server) linger() {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Linger)
	defer cancel()
	s.mu.Lock()
	s.closing, s.lingering = true, true
	s.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		s.requests.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
	}
	s.mu.Lock()
	v := s.vm
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		c.flush()
		conns = append(conns, c)
	}
	s.mu.Unlock()
	if v != nil { // what a guest says last, a panic's trace, is what it is watched for
		v.console.Drain(ctx)
	}
	for _, c := range conns {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
}

// admit counts a request, unless those are waited for that were there before.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lingering {
		s.requests.Add(1)
	}
	return !s.lingering
}
