package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// agentPort is the name that QEMU's guest agent is reached under.
const agentPort = "org.qemu.guest_agent.0"

// delimiter starts the answer to guest-sync-delimited, and may come before it:
// a byte that JSON in UTF-8 never has.
const delimiter = 0xff

// request is a command of the guest agent's protocol.
type request struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        json.RawMessage `json:"id"`
}

type reply struct {
	Return any             `json:"return,omitempty"`
	Error  *fault          `json:"error,omitempty"`
	ID     json.RawMessage `json:"id,omitempty"`
}

type fault struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// errNoReply is what a command returns that the real agent leaves unanswered
// when it succeeds.
var errNoReply = errors.New("no reply")

// serveAgent answers on the agent's port for as long as the machine runs.
func serveAgent(out *console) {
	path, err := agentDevice()
	if err != nil {
		return // a machine without that port
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		out.printf("error: guest agent: %v", err)
		return
	}
	defer f.Close()
	out.printf("error: guest agent: %v", serveRequests(out, &patientReader{f}, f))
}

func agentDevice() (string, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, path := range names {
		if attribute(path) == agentPort {
			return "/dev/" + filepath.Base(filepath.Dir(path)), nil
		}
	}
	return "", fmt.Errorf("no port %s", agentPort)
}

// patientReader waits for a host. The driver says end of file for as long as
// there is none, and has no event to wait for but a signal.
type patientReader struct{ file *os.File }

func (r *patientReader) Read(b []byte) (int, error) {
	for {
		n, err := r.file.Read(b)
		if n > 0 || (err != nil && !errors.Is(err, io.EOF)) {
			return n, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// serveRequests answers requests, a line each, until the port fails. Unlike the
// real agent it wants the line end.
func serveRequests(out *console, in io.Reader, to io.Writer) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // no request is that long
		}
		if err != nil {
			return err
		}
		if err := serveLine(out, line, to); err != nil {
			return err
		}
	}
}

// serveLine answers the request in a line. What comes before a delimiter is
// the rest of an earlier conversation.
func serveLine(out *console, line []byte, to io.Writer) error {
	for i := len(line) - 1; i >= 0; i-- {
		if line[i] == delimiter {
			line = line[i+1:]
			break
		}
	}
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return send(to, reply{Error: &fault{"GenericError", "invalid JSON: " + err.Error()}}, false)
	}
	value, err := execute(out, r)
	switch {
	case errors.Is(err, errNoReply):
		return nil
	case err != nil:
		class := "GenericError"
		if errors.Is(err, errUnknown) {
			class = "CommandNotFound"
		}
		return send(to, reply{Error: &fault{class, err.Error()}, ID: r.ID}, false)
	}
	return send(to, reply{Return: value, ID: r.ID}, r.Execute == "guest-sync-delimited")
}

func send(to io.Writer, r reply, delimited bool) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if delimited {
		text = append([]byte{delimiter}, text...)
	}
	_, err = to.Write(append(text, '\n'))
	return err
}

var errUnknown = errors.New("the command has not been found")

// agentCommands are those that execute knows, for guest-info.
func agentCommands() []string {
	return []string{
		"guest-sync-delimited", "guest-sync", "guest-ping", "guest-info", "guest-get-time", "guest-set-time",
		"guest-get-host-name", "guest-shutdown",
	}
}

func execute(out *console, r request) (any, error) {
	nothing := struct{}{}
	switch r.Execute {
	case "guest-sync", "guest-sync-delimited":
		var args struct{ ID *int64 }
		if err := json.Unmarshal(r.Arguments, &args); err != nil || args.ID == nil {
			return nil, errors.New("parameter 'id' is missing or no integer")
		}
		return *args.ID, nil
	case "guest-ping":
		return nothing, nil
	case "guest-info":
		return agentInfo(), nil
	case "guest-get-time":
		return time.Now().UnixNano(), nil
	case "guest-set-time":
		return nothing, setTime(r.Arguments)
	case "guest-get-host-name":
		name, err := os.Hostname()
		return map[string]string{"host-name": name}, err
	case "guest-shutdown":
		return nil, shutdown(out, r.Arguments)
	}
	return nil, fmt.Errorf("%w: %q", errUnknown, r.Execute)
}

func agentInfo() any {
	type supported struct {
		Name     string `json:"name"`
		Enabled  bool   `json:"enabled"`
		Response bool   `json:"success-response"`
	}
	commands := []supported{}
	for _, name := range agentCommands() {
		commands = append(commands, supported{name, true, name != "guest-shutdown"})
	}
	return map[string]any{"version": "7.2.0", "supported_commands": commands}
}

// setTime sets the system's clock to what the host says and the machine's
// clock with it or, where the host says nothing, to the machine's clock.
func setTime(arguments json.RawMessage) error {
	var args struct{ Time *int64 }
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &args); err != nil {
			return fmt.Errorf("parameter 'time': %w", err)
		}
	}
	if args.Time == nil {
		now, err := readRTC()
		if err != nil {
			return err
		}
		return setClock(now)
	}
	now := time.Unix(0, *args.Time)
	if err := setClock(now); err != nil {
		return err
	}
	return writeRTC(now)
}

func setClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("setting the clock to %v: %w", t, err)
	}
	return nil
}

// shutdown does what guest-shutdown asks for; the default is to power off.
func shutdown(out *console, arguments json.RawMessage) error {
	args := struct{ Mode string }{Mode: "powerdown"}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &args); err != nil {
			return fmt.Errorf("parameter 'mode': %w", err)
		}
	}
	how, ok := map[string]int{
		"powerdown": unix.LINUX_REBOOT_CMD_POWER_OFF,
		"halt":      unix.LINUX_REBOOT_CMD_HALT,
		"reboot":    unix.LINUX_REBOOT_CMD_RESTART,
	}[args.Mode]
	if !ok {
		return fmt.Errorf("parameter 'mode': %q is not powerdown, halt or reboot", args.Mode)
	}
	out.printf("guest agent: %s", args.Mode)
	reboot(out, how)
	return errNoReply
}
