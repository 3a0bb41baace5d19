package chtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
)

// started is the program, with its socket and its events.
type started struct {
	cmd    *exec.Cmd
	client *http.Client
	events *os.File
	stderr bytes.Buffer
}

func start(t *testing.T, program string) *started {
	t.Helper()
	s := &started{}
	path := filepath.Join(t.TempDir(), "api")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	events, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	s.events = events
	s.cmd = exec.Command(program, "--api-socket", "fd=3", "--event-monitor", "fd=4", "--seccomp", "true", "-vv")
	s.cmd.ExtraFiles = []*os.File{socket, write}
	s.cmd.Stderr = &s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); events.Close() })
	listener.SetUnlinkOnClose(false)
	s.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	return s
}

func (s *started) put(t *testing.T, call, body string, want int) {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost/api/v1/"+call, content)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		t.Fatalf("%s: %d %s %v, want %d", call, response.StatusCode, text, err, want)
	}
}

// seen are the events of a VMM that has ended.
func (s *started) seen(t *testing.T) []string {
	t.Helper()
	var out []string
	d := json.NewDecoder(s.events)
	for {
		var e struct{ Source, Event string }
		err := d.Decode(&e)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Source+" "+e.Event)
	}
}

func TestProgram(t *testing.T) {
	folder := t.TempDir()
	program, err := chtest.Build(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("asked", func(t *testing.T) { asked(t, program) })
	t.Run("refused", func(t *testing.T) { refused(t, program) })
	t.Run("driven", func(t *testing.T) { driven(t, program, folder) })
	t.Run("dies", func(t *testing.T) { dies(t, program) })
}

// asked: the probe knows it as what it stands in for.
func asked(t *testing.T, program string) {
	info, err := cloudhypervisor.New(cloudhypervisor.Config{Binary: program, Architecture: "amd64"}).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	features := info.Capabilities.GetFeatures()
	for _, want := range []string{"api-socket-descriptor", "event-monitor-descriptor", "landlock", "seccomp"} {
		if !slices.Contains(features, want) {
			t.Errorf("features %q: %s is missing", features, want)
		}
	}
	if info.Version != "53.0.0" {
		t.Errorf("version %s", info.Version)
	}
}

func refused(t *testing.T, program string) {
	for args, want := range map[string]int{
		"": 2, "--unheard-of": 2, "--api-socket": 2, "--api-socket --seccomp true": 2, "--api-socket fd=0 --landlock": 2,
		"--seccomp maybe --api-socket fd=0": 2, "--version=1": 2, "--kernel /boot/vmlinuz": 2, "stray": 2,
		"--api-socket fd=0 --api-socket fd=0": 2,
		"--api-socket fd=77":                  1, "--api-socket fd=x": 1, "--api-socket path=/nowhere/at/all": 1, "--api-socket fd=0": 1,
		"--api-socket fd=0 --event-monitor fd=77": 1,
		"--help": 0, "-h": 0, "-V": 0, "--version": 0,
	} {
		err := exec.CommandContext(t.Context(), program, strings.Fields(args)...).Run()
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != want {
			t.Errorf("%q: code %d, want %d", args, code, want)
		}
	}
}

func driven(t *testing.T, program, folder string) {
	kernel := filepath.Join(folder, "kernel")
	if err := os.WriteFile(kernel, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, program)
	s.put(t, "vm.create", fmt.Sprintf(`{"payload":{"kernel":%q},"memory":{"size":4194304}}`, kernel), 204)
	s.put(t, "vm.boot", "", 204)
	s.put(t, "vm.pause", "{}", 400)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, s.stderr.String())
	}
	if got, want := s.seen(t), []string{"vmm starting", "vm booting", "vm booted", "vm shutdown", "vm deleted", "vmm shutdown"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}

}

// dies: knobs that are beside the program, and turned while it runs.
func dies(t *testing.T, program string) {
	for _, death := range []chtest.Death{{Code: 3, Words: "no paper"}, {Signal: int(syscall.SIGSEGV)}} {
		s := start(t, program)
		s.put(t, "vm.create", "{}", 204)
		if err := (chtest.Knobs{Die: map[string]chtest.Death{"vm.delete": death}}).Write(program); err != nil {
			t.Fatal(err)
		}
		if status, answer := s.ask(t, "vm.delete", ""); status != 0 {
			t.Errorf("answered with %d %s", status, answer)
		}
		var exit *exec.ExitError
		if err := s.cmd.Wait(); !errors.As(err, &exit) {
			t.Fatalf("it ended with %v, want %+v", err, death)
		}
		status := exit.Sys().(syscall.WaitStatus)
		if killed := int(status.Signal()); status.Signaled() && killed != death.Signal || status.Exited() && status.ExitStatus() != death.Code {
			t.Errorf("it ended with %v, want %+v", exit, death)
		}
		if words := strings.TrimSpace(s.stderr.String()); words != death.Words {
			t.Errorf("its last words are %q, want %q", words, death.Words)
		}
		if err := os.Remove(program + ".json"); err != nil {
			t.Fatal(err)
		}
	}
}
