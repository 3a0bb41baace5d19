package chtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
)

// step is one call, and all that it must bring about, with the real program and
// with the one that stands in for it.
type step struct {
	first  func(dir string) error // what is done before it, or nil
	call   string                 // with "GET " before it if it is no PUT
	body   string                 // {dir} is the scenario's folder
	status int
	// says is in one of the causes; "" is not looked for.
	says   string
	state  string   // of the VM, after it; "" is no VM
	events []string // without those of devices that the guest's drivers send
}

// subject is a program that the scenarios are carried out with.
type subject struct{ name, program string }

// subjects are the stand-in and, where there is one, the real program.
func subjects(t *testing.T) []subject {
	t.Helper()
	program, err := chtest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	found := []subject{{"stand-in", program}}
	switch real, err := exec.LookPath("cloud-hypervisor"); {
	case err != nil:
		t.Logf("with the stand-in alone: %v", err)
	case noKVM() != nil:
		t.Logf("with the stand-in alone: %v", noKVM())
	default:
		found = append(found, subject{"real", real})
	}
	return found
}

func noKVM() error {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return kvm.Close()
}

// noLandlock asks for Landlock's version (LANDLOCK_CREATE_RULESET_VERSION of the
// kernel's include/uapi/linux/landlock.h).
func noLandlock() error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1); errno != 0 {
		return errno
	}
	return nil
}

// TestConformance holds the stand-in to what the real program was seen to do.
func TestConformance(t *testing.T) {
	for _, s := range subjects(t) {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range scenarios() {
				t.Run(c.name, func(t *testing.T) {
					if err := noLandlock(); c.landlock && s.name == "real" && err != nil {
						t.Skipf("the kernel has no Landlock: %v", err)
					}
					carryOut(t, s.program, c)
				})
			}
		})
	}
}

func carryOut(t *testing.T, program string, c scenario) {
	dir := workplace(t)
	s := start(t, program)
	defer func() {
		if t.Failed() {
			s.cmd.Process.Kill()
			s.cmd.Wait()
			t.Logf("its last words: %s", &s.stderr)
		}
	}()
	events := &told{t: t, in: json.NewDecoder(s.events)}
	s.events.SetReadDeadline(time.Now().Add(time.Minute)) // only so that a test that fails ends
	events.want("vmm starting")
	for i, step := range c.steps {
		label := fmt.Sprintf("step %d, %s", i, step.call)
		if step.first != nil {
			if err := step.first(dir); err != nil {
				t.Fatal(err)
			}
		}
		status, text := s.ask(t, step.call, strings.ReplaceAll(step.body, "{dir}", dir))
		last := c.ends && i == len(c.steps)-1
		if strings.Contains(text, "GetNestedState") {
			t.Skipf("this machine's KVM has not what saving takes: %s", text)
		}
		if status != step.status && (!last || status != 0) {
			t.Fatalf("%s: %d %s, want %d", label, status, text, step.status)
		}
		if status >= http.StatusBadRequest && text != "" {
			checkCauses(t, label, text, strings.ReplaceAll(step.says, "{dir}", dir))
		}
		if last {
			break
		}
		events.want(step.events...)
		if got := s.state(t); got != step.state {
			t.Fatalf("%s: the VM is %q, want %q", label, got, step.state)
		}
	}
	if !c.ends {
		s.put(t, "vmm.shutdown", "", http.StatusOK)
	}
	events.over(c.last())
	var exit *exec.ExitError
	err := s.cmd.Wait()
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Error(err)
	case exit != nil && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGSYS:
		t.Logf("its own seccomp filter ended it, as was seen once in hundreds of times: %s", &s.stderr)
	case err != nil:
		t.Errorf("it ended with %v: %s", err, &s.stderr)
	}
}

// told are the events of a VMM, but for those that the guest's drivers cause.
type told struct {
	t  *testing.T
	in *json.Decoder
}

func (e *told) next() (string, error) {
	for {
		var event struct{ Source, Event string }
		if err := e.in.Decode(&event); err != nil || event.Source != "virtio-device" {
			return event.Source + " " + event.Event, err
		}
	}
}

// want waits for events, of which none may come in between.
func (e *told) want(names ...string) {
	e.t.Helper()
	for _, name := range names {
		if got, err := e.next(); err != nil || got != name {
			e.t.Fatalf("event %q, %v: want %q", got, err, name)
		}
	}
}

// over reads to the end. The real one doesn't wait until its last are told.
func (e *told) over(names []string) {
	e.t.Helper()
	for _, name := range append(names, "") {
		switch got, err := e.next(); {
		case errors.Is(err, io.EOF):
			return
		case err != nil || got != name:
			e.t.Fatalf("at its end, event %q, %v: want %q", got, err, name)
		}
	}
}

// last are the events of a VMM that is told to end.
func (c scenario) last() []string {
	last := c.steps[len(c.steps)-1]
	switch {
	case c.ends:
		return last.events
	case last.state == "":
		return []string{"vmm shutdown"}
	case last.state == "Created":
		return []string{"vm deleted", "vmm shutdown"}
	}
	return []string{"vm shutdown", "vm deleted", "vmm shutdown"}
}

// checkCauses wants an array of causes, the outermost first.
func checkCauses(t *testing.T, label, text, says string) {
	t.Helper()
	var causes []string
	if err := json.Unmarshal([]byte(text), &causes); err != nil || len(causes) == 0 {
		t.Errorf("%s: %s: %v: want an array of causes", label, text, err)
	}
	if !strings.Contains(strings.Join(causes, "\n"), says) {
		t.Errorf("%s: %q doesn't say %q", label, causes, says)
	}
}

// workplace is a folder with all that the scenarios name.
func workplace(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ch") // the names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	elf, err := guest.PVH(guest.PVHOptions{})
	keeping, keepingErr := guest.PVH(guest.PVHOptions{KeepDevices: true})
	if err := errors.Join(err, keepingErr); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"kernel": elf, "keeping": keeping, "text": []byte("no kernel\n"), "disk": make([]byte, 1<<20), "disk2": make([]byte, 1<<20), "short": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ram"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "ram"), 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "snapshot"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ask makes a call; a VMM that hangs up answers 0.
func (s *started) ask(t *testing.T, call, body string) (int, string) {
	t.Helper()
	method, name, ok := strings.Cut(call, " ")
	if !ok {
		method, name = http.MethodPut, call
	}
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/api/v1/"+name, content)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true // there is a limit to how many are open
	response, err := s.client.Do(r)
	var refused *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &refused):
		return 0, ""
	case err != nil:
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// state is a VM's, or "" if there is none.
func (s *started) state(t *testing.T) string {
	t.Helper()
	status, text := s.ask(t, "GET vm.info", "")
	if status == http.StatusNotFound {
		return ""
	}
	var info struct{ State string }
	if err := json.Unmarshal([]byte(text), &info); err != nil || status != http.StatusOK {
		t.Fatalf("vm.info: %d %s: %v", status, text, err)
	}
	return info.State
}
