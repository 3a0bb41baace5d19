// Package server is the shim itself: it carries out one plan, keeps what the
// VMM needs, saves and restores it, and writes down how it ended.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/server/fault"
)

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
