package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Knobs are what a test wants to go wrong, by what it is done at: a QMP command of
// anybody's, or one of these. The zero value is a QEMU of which nothing is wrong.
type Knobs map[string]Deed

const (
	// AtStart is before there is a QEMU.
	AtStart = "start"
	// AtGreeting is when a client has connected, before it gets the greeting.
	AtGreeting = "greeting"
)

// Deed is what is done in the place of a command, or of the greeting, or, if all is
// zero, nothing at all: it is neither carried out nor answered.
type Deed struct {
	// Pass has it carried out, after the rest. Twice passes its reply on twice.
	Pass, Twice bool `json:",omitempty"`
	// Say is sent to the client. $ID in Head and Tail is the command's id.
	Say Text `json:",omitzero"`
	// Write goes into the file that has come last.
	Write Text `json:",omitzero"`
	// Errors and Console go to the standard error and to the guest's console.
	Errors, Console Text `json:",omitzero"`
	// Hangup closes the monitors for good.
	Hangup bool `json:",omitempty"`
	// Exit ends it with this status.
	Exit int `json:",omitempty"`
}

// Text is Head, then Body so many times, then Tail. It is never in memory as a whole.
type Text struct {
	Head, Body, Tail string `json:",omitempty"`
	Times            int    `json:",omitempty"`
}

// Build makes the program in a folder, and returns its path. qemu is the real one.
func Build(ctx context.Context, folder, qemu string) (string, error) {
	program := filepath.Join(folder, "qemu-system-relayed")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "github.com/vmlet/vmlet/test/relay/program")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building a QEMU that misbehaves: %w: %s", err, out)
	}
	return program, os.Symlink(qemu, filepath.Join(folder, realName))
}

// realName is that of the link to QEMU.
const realName = "real"

// Write puts the knobs of a VM beside the program.
func (k Knobs) Write(program, vm string) error {
	data, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("knobs: %w", err)
	}
	path := knobsPath(program, vm)
	if err := os.WriteFile(path+".next", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".next", path)
}

func knobsPath(program, vm string) string { return filepath.Join(filepath.Dir(program), vm+".json") }

// read is strict: a knob that is misspelt turns nothing.
func read(program, vm string) (Knobs, error) {
	data, err := os.ReadFile(knobsPath(program, vm))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k Knobs
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return nil, fmt.Errorf("knobs: %w", err)
	}
	return k, nil
}

// nameOf is the VM's, as it is on QEMU's command line; empty: none is started.
func nameOf(args []string) string {
	for _, a := range args {
		if name, is := strings.CutPrefix(a, "guest="); is {
			name, _, _ = strings.Cut(name, ",")
			return name
		}
	}
	return ""
}

// monitorsOf are the descriptors that QEMU listens on for its monitors.
func monitorsOf(args []string) (fds []int) {
	for _, a := range args {
		var who string
		var fd int
		if n, _ := fmt.Sscanf(strings.ReplaceAll(a, ",", " "), "socket id=monitor-%s fd=%d", &who, &fd); n == 2 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// consoleOf is the descriptor of the guest's console; 0: none.
func consoleOf(args []string) (fd int) {
	for _, a := range args {
		if n, _ := fmt.Sscanf(a, "socket,id=console,fd=%d", &fd); n == 1 {
			return fd
		}
	}
	return 0
}
