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
}

func TestMain(m *testing.M) {
	if os.Getenv(realVariable) == "" {
		os.Exit(m.Run())
	}
	if err := pretend(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "made-up host:", err)
		os.Exit(1)
	}
}

// script makes a program that is a QEMU on this host.
func (h madeUpHost) script(t *testing.T, qemu string) string {
	t.Helper()
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
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(fds[1]), "monitor")
	qemu, err := net.FileConn(os.NewFile(uintptr(fds[0]), "monitor"))
	if err != nil {
		return err
	}
	// The parent that QEMU is to die with is the thread that started it.
	runtime.LockOSThread()
	cmd := exec.Command(os.Getenv(realVariable), append(args, "-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control")...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	ended := make(chan error, 2)
	go func() { ended <- h.forward(qemu, client) }()
	go func() {
		_, err := io.Copy(client, qemu)
		ended <- err
	}()
	err = <-ended
	return errors.Join(err, cmd.Process.Kill())
}

// forward passes on what the client asks, and changes what it asks about the host.
func (h madeUpHost) forward(qemu io.Writer, client io.Reader) error {
	lines := bufio.NewScanner(client)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var call map[string]any
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			return fmt.Errorf("the client said %q: %w", lines.Text(), err)
		}
		h.change(call)
		text, err := json.Marshal(call)
		if err != nil {
			return err
		}
		if _, err := qemu.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (h madeUpHost) change(call map[string]any) {
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
