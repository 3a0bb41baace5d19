package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Server offers the devices of one resource to the kubelet. Its methods may be
// called by several goroutines.
type Server struct {
	folder  string
	log     *slog.Logger
	alloc   allocator
	state   *state
	granted atomic.Uint64
	// wake gets a value when something in the kubelet's folder has changed.
	wake chan struct{}
	// warned is set once the log says that the kubelet is away for long. Servers
	// of one kubelet may share it.
	warned *atomic.Bool

	mu            sync.Mutex
	registered    bool
	registrations uint64
	since         time.Time // when it was registered
	by            fileID    // the kubelet that did
	err           error     // why it isn't registered
	failures      int       // in a row
	told          bool      // the last that was said is that it is registered
}

// NewServer makes a server of a resource. folder is the kubelet's for device
// plugins; permissions are what containers get for device nodes: "rw", "rwm".
func NewServer(resource, folder, permissions string, log *slog.Logger) *Server {
	return &Server{
		folder: folder, log: log.With("resource", resource),
		alloc: allocator{resource: resource, permissions: permissions},
		state: newState(), wake: make(chan struct{}, 1), warned: new(atomic.Bool),
	}
}

// Update replaces the devices. The kubelet learns it at once, if it is there;
// Update waits for nobody.
func (s *Server) Update(devices []Device) {
	devices, faults := sound(devices)
	if !s.state.set(devices) {
		return
	}
	for _, f := range faults {
		s.log.Error("a device is left out", "error", f)
	}
	told := ""
	for _, d := range devices {
		if d.Obstacle != "" && d.Obstacle != told {
			told = d.Obstacle
			s.log.Warn("a device can't be used", "device", d.ID, "error", told)
		}
	}
	s.log.Info("devices", "count", len(devices), "healthy", healthy(devices))
}

func healthy(devices []Device) (count int) {
	for _, d := range devices {
		if d.Obstacle == "" {
			count++
		}
	}
	return count
}

// Wake has the server look at the kubelet's folder.
func (s *Server) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Status is how a resource stands.
type Status struct {
	Resource string
	// Devices there are, and how many of them can be used.
	Devices, Healthy int
	// Registered: the kubelet knows of it, as far as is known.
	Registered bool
	// Registrations so far, and containers that devices were granted to.
	Registrations, Allocations uint64
	// Err is why it isn't registered, though there are devices; nil: not tried yet.
	Err error
}

// Status says how the resource stands at present.
func (s *Server) Status() Status {
	now, _ := s.state.get()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{
		Resource: s.alloc.resource, Devices: len(now.devices), Healthy: healthy(now.devices),
		Registered: s.registered, Registrations: s.registrations, Allocations: s.granted.Load(), Err: s.err,
	}
}

// Run offers the resource until ctx ends: while there are devices it is
// registered, and again whenever the kubelet has forgotten it. When it returns,
// its socket is gone and nothing of it is left.
func (s *Server) Run(ctx context.Context) {
	waits := newBackoff()
	for s.present(ctx) {
		kubelet, _ := identify(s.kubelet()) // none: there is no kubelet
		err := s.session(ctx, kubelet, waits.patience)
		if ctx.Err() != nil {
			return
		}
		if s.pause(ctx, waits.after(err, s.failed(err)), kubelet) {
			waits = newBackoff()
		}
	}
}

// present waits until there is a device. False: ctx has ended.
func (s *Server) present(ctx context.Context) bool {
	for {
		now, changed := s.state.get()
		if len(now.devices) > 0 {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// pause waits, and reports whether there is another kubelet than before, which
// ends it early. Whatever else happens in the folder doesn't: that may be what
// servers do there that don't come to the kubelet either.
func (s *Server) pause(ctx context.Context, wait time.Duration, before fileID) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if now, _ := identify(s.kubelet()); now != before {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-s.wake:
		}
	}
}

// session registers on a new socket and returns why that doesn't hold any more.
// While the kubelet doesn't answer, nothing is made in its folder.
func (s *Server) session(ctx context.Context, kubelet fileID, patience time.Duration) error {
	if kubelet == (fileID{}) {
		return errNoKubelet
	}
	if err := dial(s.kubelet()); err != nil {
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	e, err := openEndpoint(s.folder, s.alloc.resource, newService(s.alloc, s.state, &s.granted))
	if err != nil {
		return err
	}
	defer e.close()
	return s.hold(ctx, e, kubelet, patience)
}

func (s *Server) kubelet() string { return filepath.Join(s.folder, KubeletSocket) }

// hold registers, and waits for the end of that. A kubelet that starts may take
// the socket away between its being made and being looked for, and then looks for
// it for ten seconds: so it is watched from the beginning.
func (s *Server) hold(ctx context.Context, e *endpoint, kubelet fileID, patience time.Duration) error {
	registering, cancel := context.WithCancel(ctx)
	answer, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		answer <- register(registering, s.kubelet(), s.alloc.resource, e.name)
	}()
	defer func() { cancel(); <-done }()
	var unheard <-chan time.Time
	begun := e.begun
	for {
		now, err := identify(s.kubelet())
		switch {
		case err == nil && now != kubelet:
			return errRestarted
		case !e.there():
			return errWiped
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-answer:
			if err != nil {
				return err
			}
			s.succeeded(kubelet)
			timer := time.NewTimer(patience)
			defer timer.Stop()
			unheard = timer.C
		case <-begun:
			begun = nil
		case <-unheard:
			if unheard = nil; begun != nil && !closed(begun) {
				return errNotHeard
			}
		case <-e.lost:
			return errDropped
		case err := <-e.served:
			return err
		case <-s.wake:
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// succeeded notes that this kubelet has registered the resource. What was before
// another one began counts no more.
func (s *Server) succeeded(kubelet fileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by != kubelet {
		s.by, s.failures = kubelet, 0
	}
	s.registered, s.since, s.err = true, time.Now(), nil
	s.registrations++
	s.warned.Store(false)
	level := slog.LevelDebug
	if !s.told {
		level, s.told = slog.LevelInfo, true
	}
	s.log.Log(context.Background(), level, "registered with the kubelet")
}

// manyFailures in a row are more than a kubelet's restart: some seconds.
const manyFailures = 10

// failed notes why the resource isn't registered, and returns how long it was
// before; where nobody asked for its devices, it never was. What a restart brings
// with it is said once, and that the kubelet is away for long once for all
// resources.
func (s *Server) failed(err error) (lasted time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registered && !errors.Is(err, errNotHeard) {
		lasted = max(time.Since(s.since), 1)
	}
	s.registered, s.err = false, err
	if lasted >= held {
		s.failures = 0
	}
	s.failures++
	away := errors.Is(err, errNoKubelet) || errors.Is(err, errSilent)
	level := slog.LevelDebug
	switch {
	case s.failures == 1:
		level, s.told = slog.LevelInfo, false
	case s.failures == manyFailures && (!away || s.warned.CompareAndSwap(false, true)):
		level, s.told = slog.LevelWarn, false
	}
	s.log.Log(context.Background(), level, "not registered with the kubelet: it is tried again", "error", err, "attempts", s.failures)
	return lasted
}
