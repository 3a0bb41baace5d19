// Package qgatest is a guest agent for tests: it keeps step as the real one does, and refuses
// what the real one refuses.
package qgatest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// sentinel begins the answer to guest-sync-delimited, and has the agent drop what came before.
const sentinel = 0xff

// NotFound is the answer to a command that there is not.
const NotFound = `{"error": {"class": "CommandNotFound", "desc": "The command has not been found"}}`

// Reply answers a command; one line of JSON.
type Reply func(command string, arguments json.RawMessage) string

// Serve returns a connection with an agent at its other end, which ends with the test.
func Serve(t *testing.T, reply Reply) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		if err := Run(theirs, reply); err != nil {
			t.Errorf("guest agent: %v", err)
		}
	}()
	t.Cleanup(func() {
		ours.Close()
		<-done
	})
	return ours
}

// Run answers until the connection ends. An error is what no client may say.
func Run(conn io.ReadWriter, reply Reply) error {
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		if at := bytes.LastIndexByte(line, sentinel); at >= 0 {
			line = line[at+1:]
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var request struct {
			Execute   string          `json:"execute"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if err := json.Unmarshal(line, &request); err != nil {
			return fmt.Errorf("the client sent %q: %w", line, err)
		}
		answer := ""
		if request.Execute == "guest-sync-delimited" {
			var args struct {
				ID int64 `json:"id"`
			}
			if err := json.Unmarshal(request.Arguments, &args); err != nil {
				return err
			}
			answer = fmt.Sprintf("\xff{\"return\": %d}", args.ID)
		} else if answer = reply(request.Execute, request.Arguments); answer == "" {
			continue // as guest-shutdown
		}
		if _, err := io.WriteString(conn, answer+"\n"); err != nil {
			return nil
		}
	}
}

// Agent is one with file systems that can be frozen, and programs that can be run.
type Agent struct {
	mu     sync.Mutex
	frozen bool
	asked  []string
	ended  map[int64]Program
	// Programs of the guest, by their paths: how they end.
	Programs map[string]Program
	// Reboot is called when the guest is to reboot.
	Reboot func()
	// Thaws is called when its file systems are thawed that were frozen.
	Thaws func()
}

// Program is how a program ends.
type Program struct {
	Code   int
	Output string
}

// Frozen tells whether its file systems are frozen.
func (a *Agent) Frozen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.frozen
}

// Asked returns the commands that it was sent.
func (a *Agent) Asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.asked...)
}

// whileFrozen are the commands that an agent carries out whose file systems are frozen
// (ga_freeze_allowlist in qga/main.c of QEMU).
func whileFrozen(command string) bool {
	switch command {
	case "guest-ping", "guest-info", "guest-sync", "guest-sync-delimited", "guest-fsfreeze-status", "guest-fsfreeze-thaw":
		return true
	}
	return false
}

// Reply implements Reply.
func (a *Agent) Reply(command string, arguments json.RawMessage) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, command)
	if a.frozen && !whileFrozen(command) {
		return fmt.Sprintf(`{"error": {"class": "CommandNotFound", "desc": "Command %s has been disabled: the agent is in frozen state"}}`, command)
	}
	v, err := a.carryOut(command, arguments)
	if err != nil {
		return fmt.Sprintf(`{"error": {"class": "GenericError", "desc": %q}}`, err.Error())
	}
	if v == nil {
		return ""
	}
	b, _ := json.Marshal(map[string]any{"return": v})
	return string(b)
}

func (a *Agent) carryOut(command string, arguments json.RawMessage) (any, error) {
	nothing := struct{}{}
	switch command {
	case "guest-ping":
		return nothing, nil
	case "guest-info":
		return map[string]any{"version": "9.2.0", "supported_commands": []any{}}, nil
	case "guest-get-host-name":
		return map[string]string{"host-name": "web-1"}, nil
	case "guest-fsfreeze-status":
		if a.frozen {
			return "frozen", nil
		}
		return "thawed", nil
	case "guest-fsfreeze-freeze":
		a.frozen = true
		return 1, nil
	case "guest-fsfreeze-thaw":
		n := 0
		if a.frozen && a.Thaws != nil {
			n = 1
			a.Thaws()
		}
		a.frozen = false
		return n, nil
	case "guest-exec":
		return a.exec(arguments)
	case "guest-exec-status":
		return a.status(arguments)
	case "guest-shutdown":
		if a.Reboot == nil {
			return nil, errors.New("child process has failed to shutdown")
		}
		a.Reboot()
		return nil, nil
	}
	return nil, errors.New("the command " + command + " has not been found")
}

func (a *Agent) exec(arguments json.RawMessage) (any, error) {
	var args struct {
		Path    string   `json:"path"`
		Arg     []string `json:"arg"`
		Capture bool     `json:"capture-output"`
	}
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, err
	}
	program, has := a.Programs[args.Path]
	if !has {
		return nil, fmt.Errorf("failed to execute child process %q (No such file or directory)", args.Path)
	}
	if a.ended == nil {
		a.ended = make(map[int64]Program)
	}
	pid := int64(100 + len(a.asked))
	a.ended[pid] = program
	return map[string]int64{"pid": pid}, nil
}

func (a *Agent) status(arguments json.RawMessage) (any, error) {
	var args struct {
		PID int64 `json:"pid"`
	}
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, err
	}
	program, has := a.ended[args.PID]
	if !has {
		return nil, fmt.Errorf("process %d does not exist", args.PID)
	}
	delete(a.ended, args.PID) // it answers once of one that has ended
	s := map[string]any{"exited": true, "exitcode": program.Code}
	if program.Output != "" {
		s["out-data"] = base64.StdEncoding.EncodeToString([]byte(program.Output))
	}
	return s, nil
}
