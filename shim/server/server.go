// Package server is the shim itself: it carries out one plan, keeps what the
// VMM needs, saves and restores it, and writes down how it ended.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// Server is a shim: it lets agents in, has the rooms carry out what they ask for, and ends.
type Server struct {
	*session
	launcher *launcher
	source   *source
	saves    *saves
	rollback *rollback
	devices  *devices
	guests   *guests
	ender    *ender
	renewals *renewals

	requests sync.WaitGroup
	// lingering: no request is counted any more; guarded by mu.
	lingering bool
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
	one, err := newSession(o)
	if err != nil {
		return nil, err
	}
	return inRooms(one), nil
}

// inRooms has a session served by the rooms, each of which has those below it that it needs.
func inRooms(one *session) *Server {
	s := &Server{session: one, source: &source{session: one}, saves: newSaves(one), devices: &devices{session: one}, guests: &guests{session: one}}
	s.rollback = s.saves.rollback
	s.ender = &ender{session: one, rollback: s.rollback}
	s.launcher = &launcher{session: one, source: s.source, guests: s.guests, ender: s.ender}
	s.renewals = &renewals{session: one, launcher: s.launcher, guests: s.guests}
	return s
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
		if !s.ender.awaitSave() {
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
	s.ender.stopWithin(v, grace)
	s.mu.Unlock()
	s.log.Info("asking the guest to shut down", "grace", grace)
	s.ender.press(v)
	s.ender.pressAgain(v)
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
			s.rollback.discard(op, v, p)
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

// serve takes a connection in.
func (s *Server) serve(socket *net.UnixConn) {
	c := newConn(socket, s, s.o.Log)
	s.mu.Lock()
	if len(s.conns) >= maxConns {
		s.mu.Unlock()
		s.o.Log.Warn("connection refused: too many", "connections", maxConns)
		c.wire.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.greeted = true
	s.mu.Unlock()
	go c.write()
	go c.read()
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

func (s *Server) answered() { s.requests.Done() }
