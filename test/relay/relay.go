package relay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main is the program. It returns what to leave with.
func Main(program string, args []string) int {
	qemu := filepath.Join(filepath.Dir(program), realName)
	name := nameOf(args)
	if name == "" {
		err := unix.Exec(qemu, append([]string{qemu}, args...), os.Environ())
		fmt.Fprintln(os.Stderr, qemu, err)
		return 1
	}
	r := &relay{program: program, name: name, args: args, qemu: qemu}
	code, err := r.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return 1
	}
	return code
}

// relay is one VM's.
type relay struct {
	program, name, qemu string
	args                []string
	console             *os.File // nil: none

	mu        sync.Mutex
	listeners []net.Listener
	conns     []net.Conn
}

// at is what is to be done at something, by the knobs as they are now.
func (r *relay) at(what string) (Deed, bool) {
	k, err := read(r.program, r.name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
	d, is := k[what]
	return d, is
}

// run starts QEMU with monitors of its own, and passes them on until it has ended.
func (r *relay) run() (int, error) {
	// QEMU dies with this thread (PR_SET_PDEATHSIG), as the shim has it die with its.
	runtime.LockOSThread()
	files, err := inherited()
	if err != nil {
		return 0, err
	}
	if fd := consoleOf(r.args); fd != 0 {
		r.console = files[fd]
	}
	if d, is := r.at(AtStart); is {
		r.do(d, "", io.Discard, nil)
		if !d.Pass {
			select {} // neither does it anything
		}
	}
	own := make(map[int]*os.File, len(files))
	for fd, f := range files {
		own[fd] = f
	}
	for i, fd := range monitorsOf(r.args) {
		if own[fd], err = r.relay(files[fd], fmt.Sprintf("@relay-%d-%d", os.Getpid(), i)); err != nil {
			return 0, err
		}
	}
	cmd := exec.Command(r.qemu, r.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	for fd := 3; len(own) > 0; fd++ {
		cmd.ExtraFiles = append(cmd.ExtraFiles, own[fd])
		delete(own, fd)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// inherited are the descriptors that the program was started with, but for the first
// three. Those that Go has opened for itself close on exec.
func inherited() (map[int]*os.File, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	files := make(map[int]*os.File)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		files[fd] = os.NewFile(uintptr(fd), e.Name())
	}
	return files, nil
}

// relay listens in QEMU's place, and returns what QEMU is to listen on.
func (r *relay) relay(socket *os.File, address string) (*os.File, error) {
	outer, err := net.FileListener(socket)
	if err != nil {
		return nil, err
	}
	socket.Close()
	inner, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	r.listeners = append(r.listeners, outer)
	go func() {
		for {
			client, err := outer.Accept()
			if err != nil {
				return
			}
			go r.serve(client.(*net.UnixConn), address)
		}
	}()
	return inner.File()
}

// serve passes one client's connection on.
func (r *relay) serve(client *net.UnixConn, address string) {
	defer client.Close()
	r.mu.Lock()
	r.conns = append(r.conns, client)
	r.mu.Unlock()
	c := &connection{relay: r, client: client}
	if d, is := r.at(AtGreeting); is {
		r.do(d, "", client, nil)
		if !d.Pass {
			_, _ = io.Copy(io.Discard, client)
			return
		}
	}
	qemu, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return
	}
	defer qemu.Close()
	c.qemu = qemu
	go c.replies()
	c.commands()
}

// connection is a client's, and the one to QEMU for it.
type connection struct {
	relay        *relay
	client, qemu *net.UnixConn

	mu    sync.Mutex
	twice string // the id of a reply
}

// replies passes on what QEMU says.
func (c *connection) replies() {
	defer c.client.Close()
	lines := bufio.NewReader(c.qemu)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		c.mu.Lock()
		if c.twice != "" && bytes.Contains(line, []byte(c.twice)) {
			line = append(line, line...)
		}
		c.mu.Unlock()
		if _, err := c.client.Write(line); err != nil {
			return
		}
	}
}

// commands passes on what the client says. Files come with a command's first byte.
func (c *connection) commands() {
	var rest []byte
	var file io.Writer // that has come last; nil: none
	data, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := c.client.ReadMsgUnix(data, oob)
		if err != nil || n == 0 {
			return
		}
		rights := bytes.Clone(oob[:oobn])
		if fds := received(rights); len(fds) > 0 {
			file = os.NewFile(uintptr(fds[0]), "received")
		}
		rest = append(rest, data[:n]...)
		for {
			line, more, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				break
			}
			rest = more
			if !c.command(line, file) {
				continue
			}
			_, _, err := c.qemu.WriteMsgUnix(append(line, '\n'), rights, nil)
			if err != nil {
				return
			}
			rights = nil
		}
	}
}

// command does what is to be done at one, and says whether it is carried out.
func (c *connection) command(line []byte, file io.Writer) bool {
	var command struct {
		Execute string
		ID      string
	}
	if json.Unmarshal(line, &command) != nil {
		return true
	}
	d, is := c.relay.at(command.Execute)
	if !is {
		return true
	}
	if d.Twice {
		c.mu.Lock()
		c.twice = command.ID
		c.mu.Unlock()
	}
	c.relay.do(d, command.ID, c.client, file)
	return d.Pass
}

func received(rights []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if some, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds
}

// do misbehaves. What can't be written has a reader that has had enough.
func (r *relay) do(d Deed, id string, client, file io.Writer) {
	_ = d.Errors.write(os.Stderr, id)
	if r.console != nil {
		_ = d.Console.write(r.console, id)
	}
	if file != nil {
		_ = d.Write.write(file, id)
	}
	_ = d.Say.write(client, id)
	if d.Hangup {
		r.hangUp()
	}
	if d.Exit != 0 {
		os.Exit(d.Exit)
	}
}

// hangUp closes the monitors.
func (r *relay) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.listeners {
		l.Close()
	}
	for _, c := range r.conns {
		c.Close()
	}
}

// write writes it in pieces.
func (t Text) write(w io.Writer, id string) error {
	if _, err := io.WriteString(w, strings.ReplaceAll(t.Head, "$ID", id)); err != nil {
		return err
	}
	if t.Body != "" {
		at := max(1, (64<<10)/len(t.Body))
		piece := strings.Repeat(t.Body, min(at, t.Times))
		for left := t.Times; left > 0; left -= at {
			if _, err := io.WriteString(w, piece[:len(t.Body)*min(at, left)]); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(w, strings.ReplaceAll(t.Tail, "$ID", id))
	return err
}
