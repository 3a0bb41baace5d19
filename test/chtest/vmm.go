package chtest

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options are how the program was started.
type Options struct {
	// Knobs are asked anew at each request; nil: none is turned.
	Knobs func() Knobs
	// Events is where events go; nil: nowhere.
	Events io.Writer
	// Stdout is where a console of mode Tty writes to, Stderr where last words go;
	// nil: nowhere.
	Stdout, Stderr io.Writer
	// Stdin is what such a console reads, if it is a terminal; nil: nothing.
	Stdin io.Reader
}

// VMM is a stand-in that runs. Its methods may be called from any goroutine.
type VMM struct {
	options Options
	knobs   func() Knobs
	events  *monitor
	server  *server
	exited  chan struct{}
	// terminal is the program's own.
	terminal terminal

	// mu is held by who acts for the VMM thread: a request, or the guest.
	mu          sync.Mutex
	fence       fence
	config      *config          // nil: no VM was created
	vm          *vm              // nil: none is booted
	serial      *console         // nil: none is open
	descriptors map[int]*os.File // of network devices, by the number in the configuration
	leaving     bool             // once the answer is sent

	ending sync.Once
	code   int
	signal unix.Signal
}

// New starts a VMM that serves a socket which listens already. The listener is
// the VMM's from then on.
func New(listener *net.UnixListener, o Options) *VMM {
	m := &VMM{options: o, knobs: o.Knobs, exited: make(chan struct{}), descriptors: map[int]*os.File{}}
	if m.knobs == nil {
		m.knobs = func() Knobs { return Knobs{} }
	}
	for _, out := range []*io.Writer{&m.options.Stdout, &m.options.Stderr} {
		if *out == nil {
			*out = io.Discard
		}
	}
	m.terminal.in, m.terminal.out = o.Stdin, m.options.Stdout
	m.events = &monitor{start: time.Now(), out: o.Events}
	m.server = &server{vmm: m, listener: listener, conns: map[*net.UnixConn]bool{}}
	m.events.emit("vmm", "starting", nil)
	m.server.wg.Go(m.server.accept)
	return m
}

// Exited is closed when the VMM has ended.
func (m *VMM) Exited() <-chan struct{} { return m.exited }

// Code is what the program leaves with, and the signal that ends it, if any. It
// is known once Exited is closed.
func (m *VMM) Code() (int, unix.Signal) { return m.code, m.signal }

// Terminate is SIGTERM: the VM is deleted, and the VMM leaves.
func (m *VMM) Terminate() {
	m.mu.Lock()
	m.shutdownVMM()
	m.mu.Unlock()
	m.leave(0)
}

// leave ends the VMM once the request that is being carried out is answered.
func (m *VMM) leave(code int) {
	m.server.turn.Lock()
	defer m.server.turn.Unlock()
	m.end(code, 0)
}

// Close ends it whatever it does, as SIGKILL would.
func (m *VMM) Close() {
	m.end(137, 0)
	m.server.wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
}

// drop lets go of everything, with no event and no file removed.
func (m *VMM) drop() {
	if m.vm != nil {
		m.vm.end()
		m.vm = nil
	}
	for _, file := range m.descriptors {
		file.Close()
	}
	clear(m.descriptors)
}

func (m *VMM) end(code int, signal unix.Signal) {
	m.ending.Do(func() {
		m.code, m.signal = code, signal
		m.server.close()
		close(m.exited)
	})
}

func (m *VMM) hasDied() bool {
	select {
	case <-m.exited:
		return true
	default:
		return false
	}
}

// die ends the VMM at once, as a bug does.
func (m *VMM) die(d Death) {
	if d.Words != "" {
		fmt.Fprintln(m.options.Stderr, d.Words)
	}
	m.end(d.Code, unix.Signal(d.Signal))
}

// answered leaves after vmm.shutdown, whose answer is still sent.
func (m *VMM) answered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving {
		m.end(0, 0)
	}
}

// carryOut is a request's way through the VMM, with what a test wants of it.
func (m *VMM) carryOut(r *request, call string, k Knobs) (int, string) {
	for range k.Flood {
		m.events.emit("stand-in", "noise", map[string]string{"call": call, "padding": strings.Repeat("x", 200)})
	}
	spill(m.options.Stderr, "oh no\n", k.Spill[call])
	spill(m.options.Stdout, "oh no\n", k.Spill[call])
	m.events.junk(k.Junk[call])
	if k.Hangup[call] {
		m.server.close()
		return 0, ""
	}
	if death, ok := k.Die[call]; ok && !death.Done {
		m.die(death)
		return 0, ""
	}
	status, body := m.route(r, call, k)
	if death, ok := k.Die[call]; ok {
		m.die(death)
	}
	return status, body
}

// spill writes a text again and again.
func spill(out io.Writer, text string, bytes int) {
	piece := []byte(strings.Repeat(text, min(bytes, 64<<10)/len(text)+1))
	for ; bytes > 0; bytes -= len(piece) {
		out.Write(piece[:min(bytes, len(piece))]) // its reader may have had enough
	}
}

// dawdle takes the time that a test wants a call to take. The VMM does nothing
// else meanwhile.
func (m *VMM) dawdle(call string) {
	if ms := m.knobs().Slow[call]; ms > 0 {
		select {
		case <-time.After(milliseconds(ms)):
		case <-m.exited:
		}
	}
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// guestLeft is the guest that has shut down or reset itself.
func (m *VMM) guestLeft(from *machine, reset bool) {
	if leave, code := m.afterGuest(from, reset); leave {
		m.leave(code)
	}
}

func (m *VMM) afterGuest(from *machine, reset bool) (leave bool, code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.vm == nil || m.vm.machine != from || m.hasDied():
		return false, 0
	case reset:
		err := m.reboot()
		if err != nil {
			fmt.Fprintln(m.options.Stderr, strings.Join(chain(err), ": "))
		}
		return err != nil, 1
	}
	m.shutdownVMM()
	return true, 0
}

// openConsoles makes the consoles of a configuration. The guest writes to the serial
// one alone.
func (m *VMM) openConsoles() error {
	for _, mode := range []string{m.config.Console.Mode, m.config.Serial.Mode} {
		console, err := openConsole(mode, &m.terminal)
		if err != nil {
			return causedBy(err, "a console can't be opened")
		}
		m.serial = console
	}
	return nil
}
