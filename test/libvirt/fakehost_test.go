package libvirt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// A made-up host is a QEMU that says its best CPU is another than it is: this
// program stands between the monitor's client and the real QEMU, and asks for
// another model where the client asks for host or max. Both libvirt and vmlet
// are given it as their QEMU.
const (
	realVariable = "VMLET_REAL_QEMU"
	hostVariable = "VMLET_MADE_UP_HOST"
	// servingVariable is set in the process that has gone into the background,
	// as -daemonize demands; descriptor 3 is its listening socket.
	servingVariable = "VMLET_MADE_UP_HOST_SERVES"
)

// madeUpHost is what is asked for instead of host or max.
type madeUpHost struct {
	// Model of QEMU's that it is like.
	Model string `json:"model"`
	// Props are where it differs: features, "model" and "stepping".
	Props map[string]any `json:"props,omitempty"`
	// Has are the features that follow, by QEMU's names: no model can lack one.
	Has map[string]bool `json:"has,omitempty"`
}

func TestMain(m *testing.M) {
	if os.Getenv(realVariable) == "" {
		os.Exit(suites.StartsVMs(m))
	}
	if err := pretend(slices.Clone(os.Args[1:])); err != nil {
		fmt.Fprintln(os.Stderr, "made-up host:", err)
		os.Exit(1)
	}
}

// script makes a program that is a QEMU on this host.
func (h madeUpHost) script(t *testing.T, qemu string) string {
	t.Helper()
	h.Has = h.features(t, qemu)
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "qemu-system-x86_64")
	content := fmt.Sprintf("#!/bin/sh\n%s='%s' %s='%s' exec '%s' \"$@\"\n", realVariable, qemu, hostVariable, text, self)
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// features asks the QEMU what such a host has.
func (h madeUpHost) features(t *testing.T, binary string) map[string]bool {
	t.Helper()
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"-no-user-config", "-nodefaults", "-display", "none", "-S", "-machine", "none", "-accel", "tcg"}, monitor...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	defer cmd.Wait() // killed: its status says so
	defer cmd.Process.Kill()
	client, err := qmp.New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var reply struct {
		Model struct {
			Props map[string]any `json:"props"`
		} `json:"model"`
	}
	props := map[string]any{}
	maps.Copy(props, h.Props)
	query := map[string]any{"type": "full", "model": map[string]any{"name": h.Model, "props": props}}
	if err := client.Execute(t.Context(), "query-cpu-model-expansion", query, &reply); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for name, value := range reply.Model.Props {
		if value == true {
			has[name] = true
		}
	}
	return has
}

// monitor are the options of a QEMU whose monitor is descriptor 3.
var monitor = []string{"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control"}

// pair makes a connection to hand one end of to a child.
func pair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours := os.NewFile(uintptr(fds[0]), "monitor")
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	return conn, os.NewFile(uintptr(fds[1]), "monitor"), err
}

// pretend runs with a QEMU's arguments: libvirt's, with a socket's path, or
// vmlet's, with a connection at descriptor 3.
func pretend(args []string) error {
	var host madeUpHost
	if err := json.Unmarshal([]byte(os.Getenv(hostVariable)), &host); err != nil {
		return err
	}
	var client net.Conn
	var err error
	socket, daemon := take(&args, "-qmp")
	if !daemon {
		client, err = net.FileConn(os.NewFile(3, "monitor"))
		take(&args, "-chardev")
		take(&args, "-mon")
	} else {
		pidFile, _ := take(&args, "-pidfile")
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == "-daemonize" })
		path, _, _ := strings.Cut(strings.TrimPrefix(socket, "unix:"), ",")
		if os.Getenv(servingVariable) == "" {
			return background(path, pidFile)
		}
		client, err = acceptOne()
	}
	if err != nil {
		return err
	}
	return host.relay(client, args)
}

// take removes an option with a value and returns the value.
func take(args *[]string, option string) (string, bool) {
	i := slices.Index(*args, option)
	if i < 0 || i+1 == len(*args) {
		return "", false
	}
	value := (*args)[i+1]
	*args = slices.Delete(*args, i, i+2)
	return value, true
}

// background starts this program again with a socket that listens already, as
// QEMU's -daemonize returns when it does.
func background(path, pidFile string) error {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	file, err := listener.(*net.UnixListener).File()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), servingVariable+"=1")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

func acceptOne() (net.Conn, error) {
	listener, err := net.FileListener(os.NewFile(3, "monitor"))
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return listener.Accept()
}

// relay runs the real QEMU until either side ends.
func (h madeUpHost) relay(client net.Conn, args []string) error {
	qemu, theirs, err := pair()
	if err != nil {
		return err
	}
	// The parent that QEMU is to die with is the thread that started it.
	runtime.LockOSThread()
	cmd := exec.Command(os.Getenv(realVariable), append(args, monitor...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	ended := make(chan error, 2)
	go func() { ended <- forward(qemu, client, h.ask) }()
	go func() { ended <- forward(client, qemu, h.answer) }()
	err = <-ended
	return errors.Join(err, cmd.Process.Kill())
}

// forward passes messages on, each changed.
func forward(to io.Writer, from io.Reader, change func(message map[string]any)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var message map[string]any
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return fmt.Errorf("one side said %q: %w", lines.Text(), err)
		}
		change(message)
		text, err := json.Marshal(message)
		if err != nil {
			return err
		}
		if _, err := to.Write(append(text, '\r', '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

// ask asks about the made-up host instead of this one.
func (h madeUpHost) ask(call map[string]any) {
	if call["execute"] != "query-cpu-model-expansion" {
		return
	}
	args, _ := call["arguments"].(map[string]any)
	model, _ := args["model"].(map[string]any)
	if model["name"] != "host" && model["name"] != "max" {
		return
	}
	model["name"] = h.Model
	props, _ := model["props"].(map[string]any)
	if props == nil {
		props = map[string]any{}
	}
	maps.Copy(props, h.Props)
	model["props"] = props
}

// answer takes what the made-up host has from what models lack here.
func (h madeUpHost) answer(reply map[string]any) {
	list, _ := reply["return"].([]any)
	for _, each := range list {
		model, _ := each.(map[string]any)
		if lacks, ok := model["unavailable-features"].([]any); ok {
			model["unavailable-features"] = slices.DeleteFunc(lacks, func(name any) bool {
				text, _ := name.(string)
				return h.Has[text]
			})
		}
	}
}
