package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

func TestSlicePath(t *testing.T) {
	for slice, want := range map[string]string{
		"vmlet.slice":              "/vmlet.slice",
		"vmlet-0123abcd.slice":     "/vmlet.slice/vmlet-0123abcd.slice",
		"machine-vmlet-test.slice": "/machine.slice/machine-vmlet.slice/machine-vmlet-test.slice",
	} {
		if got := slicePath(slice); got != want {
			t.Errorf("%s is at %s, want %s", slice, got, want)
		}
	}
}

// TestScopePlan: the name is a unit's, and a run's own.
func TestScopePlan(t *testing.T) {
	s := &scopes{v2: v2{cgroupMount, "/vmlet.slice"}}
	name := strings.Repeat("a-0", 21) // the longest that a VM can have
	c := s.Plan(name)
	if !strings.HasPrefix(c.Unit, "vmlet-"+name+"-") || filepath.Ext(c.Unit) != ".scope" || len(c.Unit) > 255 {
		t.Errorf("unit %s", c.Unit)
	}
	if want := "/vmlet.slice/" + c.Unit; c.Path() != want {
		t.Errorf("path %s, want %s", c.Path(), want)
	}
	if again := s.Plan(name); again.Unit == c.Unit {
		t.Errorf("two runs have unit %s", c.Unit)
	}
}

// fakeSystemd is the manager's part of systemd, on a message bus of its own: strict in
// what it takes, and otherwise as a test has it.
type fakeSystemd struct {
	t       *testing.T
	bus     *exec.Cmd
	address string
	conn    *dbus.Conn
	mount   string
	slices  string // below which it makes what it is asked for

	mu     sync.Mutex
	jobs   int
	answer answer
}

// answer is how systemd takes to StartTransientUnit.
type answer struct {
	refuse *dbus.Error
	result string // of the job
	idle   bool   // it moves no process
}

func (f *fakeSystemd) answers(a answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = a
}

const managerPath = dbus.ObjectPath("/org/freedesktop/systemd1")

// newFakeSystemd skips the test where there is no bus or no cgroup v2.
func newFakeSystemd(t *testing.T) *fakeSystemd {
	t.Helper()
	needRoot(t)
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip(err)
	}
	mount, mounted := unifiedMount()
	if !mounted {
		t.Skip("cgroup v2 is not mounted")
	}
	f := &fakeSystemd{t: t, mount: mount, slices: fmt.Sprintf("/vmlet-test-%d", os.Getpid()), answer: answer{result: "done"}}
	f.address = "unix:path=" + filepath.Join(t.TempDir(), "bus")
	f.bus = exec.CommandContext(t.Context(), program, "--session", "--nofork", "--print-address", "--address="+f.address)
	out, err := f.bus.StdoutPipe()
	if err == nil {
		err = f.bus.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.bus.Process.Kill()
		_ = f.bus.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it listens
		t.Fatal("dbus-daemon: ", err)
	}
	if f.conn, err = dbus.Connect(f.address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.conn.Close() })
	for _, err := range []error{
		f.conn.Export(f, managerPath, "org.freedesktop.systemd1.Manager"),
		f.conn.Export(fakeProperties{f}, managerPath, "org.freedesktop.DBus.Properties"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := f.conn.RequestName("org.freedesktop.systemd1", dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return f
}

// dial connects as systemBus does, with this bus.
func (f *fakeSystemd) dial(ctx context.Context) (*systemd.Conn, error) {
	return systemd.NewConnection(func() (*dbus.Conn, error) { return dbus.Connect(f.address, dbus.WithContext(ctx)) })
}

func (f *fakeSystemd) open() Cgroups {
	f.t.Helper()
	groups, err := openScopes(f.mount, "vmlet-x.slice", f.dial)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(groups.Close)
	return groups
}

type fakeProperties struct{ f *fakeSystemd }

func (p fakeProperties) Get(iface, name string) (dbus.Variant, *dbus.Error) {
	if iface != "org.freedesktop.systemd1.Manager" || name != "ControlGroup" {
		return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s of %s", name, iface))
	}
	return dbus.MakeVariant(p.f.slices), nil
}

type fakeProperty struct {
	Name  string
	Value dbus.Variant
}

type fakeAux struct {
	Name       string
	Properties []fakeProperty
}

// signatures are those of the properties that systemd 252 takes of a scope, as far as
// any is asked for (org.freedesktop.systemd1(5)).
func signatures() map[string]string {
	return map[string]string{
		"Description": "s", "Slice": "s", "PIDs": "au", "Delegate": "b", "CollectMode": "s",
		"KillSignal": "i", "TimeoutStopUSec": "t", "After": "as",
	}
}

func (f *fakeSystemd) StartTransientUnit(name, mode string, properties []fakeProperty, aux []fakeAux) (dbus.ObjectPath, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := make(map[string]any)
	for _, p := range properties {
		if want := signatures()[p.Name]; p.Value.Signature().String() != want {
			return "", dbus.NewError("org.freedesktop.DBus.Error.PropertyReadOnly", []any{"Cannot set property " + p.Name + ", or unknown property."})
		}
		got[p.Name] = p.Value.Value()
	}
	switch {
	case f.answer.refuse != nil:
		return "", f.answer.refuse
	case mode != "fail" || len(aux) > 0 || len(got) != len(properties) || filepath.Ext(name) != ".scope":
		return "", dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{name + " " + mode})
	}
	f.jobs++
	job := dbus.ObjectPath(fmt.Sprint(managerPath, "/job/", f.jobs))
	if !f.answer.idle {
		folder := filepath.Join(f.mount, f.slices, slicePath(got["Slice"].(string)), name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", dbus.MakeFailedError(err)
		}
		for _, pid := range got["PIDs"].([]uint32) {
			if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0); err != nil {
				return "", dbus.MakeFailedError(err)
			}
		}
		f.t.Cleanup(func() { f.removeAll(folder) })
	}
	if err := f.conn.Emit(managerPath, "org.freedesktop.systemd1.Manager.JobRemoved", uint32(f.jobs), job, name, f.answer.result); err != nil {
		return "", dbus.MakeFailedError(err)
	}
	return job, nil
}

// removeAll removes a cgroup and those above it that are the test's.
func (f *fakeSystemd) removeAll(folder string) {
	for ; folder != f.mount; folder = filepath.Dir(folder) {
		if err := rmdir(folder, soon()); err != nil {
			f.t.Error(err)
			return
		}
	}
}

// TestScope: a process gets a scope, which is looked into, awaited and left to systemd.
func TestScope(t *testing.T) {
	f := newFakeSystemd(t)
	groups := f.open()
	groups.Warm()
	c := groups.Plan("web")
	c.Grace = time.Minute
	if err := groups.Make(c); err != nil {
		t.Fatal(err)
	}
	process := sleeper(t, 0)
	if err := groups.Add(c, process.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pids, err := groups.Processes(c); err != nil || !slices.Equal(pids, []int{process.Process.Pid}) {
		t.Errorf("processes %v, %v; want %d", pids, err, process.Process.Pid)
	}
	if err := groups.Remove(c); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "(sleep)") {
		t.Errorf("removing it under a process: %v", err)
	}
	if swept, err := groups.Sweep(func(string) bool { return false }); err != nil || len(swept) > 0 {
		t.Errorf("swept %v, %v of systemd's", swept, err)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed(t, process)
	if err := groups.Remove(c); err != nil {
		t.Error(err)
	}
	folder := filepath.Join(f.mount, c.Path())
	if _, err := os.Stat(folder); err != nil {
		t.Errorf("systemd's cgroup: %v", err)
	}
	if err := unix.Rmdir(folder); err != nil {
		t.Fatal(err)
	}
	if err := groups.Remove(c); err != nil {
		t.Errorf("a scope that systemd has removed: %v", err)
	}
}

func TestScopeProperties(t *testing.T) {
	s := &scopes{slice: "vmlet.slice"}
	types := make(map[string]string)
	for _, p := range s.properties(Cgroup{Grace: time.Minute}, 7) {
		types[p.Name] = p.Value.Signature().String()
		if p.Name == "TimeoutStopUSec" && p.Value.Value() != uint64((time.Minute+endMargin).Microseconds()) {
			t.Errorf("it may take %v µs to stop", p.Value)
		}
	}
	if want := signatures(); !maps.Equal(types, want) {
		t.Errorf("types %v, want %v", types, want)
	}
}

func TestScopeRefusals(t *testing.T) {
	f := newFakeSystemd(t)
	groups := f.open()
	for _, c := range []struct {
		name   string
		answer answer
		want   string
	}{
		{"a name that is taken", answer{refuse: dbus.NewError("org.freedesktop.systemd1.UnitExists", []any{"Unit was already loaded."})}, "already loaded"},
		{"no rights", answer{refuse: dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"Permission denied"})}, "Permission denied"},
		{"a job that fails", answer{result: "failed", idle: true}, `"failed"`},
		{"a job that is cancelled", answer{result: "canceled", idle: true}, `"canceled"`},
		{"a process that stays", answer{result: "done", idle: true}, "has put it into"},
	} {
		f.answers(c.answer)
		process := sleeper(t, 0)
		cgroup := groups.Plan("web")
		if err := groups.Add(cgroup, process.Process.Pid); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), cgroup.Unit) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if err := groups.Remove(cgroup); err != nil {
			t.Errorf("%s: removing it: %v", c.name, err)
		}
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	// A process that has ended is found to have.
	f.answers(answer{refuse: dbus.NewError("org.freedesktop.DBus.Error.UnixProcessIdUnknown", []any{"Process with ID does not exist."})})
	process := sleeper(t, 0)
	_ = process.Process.Kill()
	_ = process.Wait()
	if err := groups.Add(groups.Plan("web"), process.Process.Pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a process that has ended: %v", err)
	}
}

// TestScopeJobSaysNothing: the process counts, not what is known of the job.
func TestScopeJobSaysNothing(t *testing.T) {
	f := newFakeSystemd(t)
	f.answers(answer{result: "failed"})
	groups := f.open()
	process := sleeper(t, 0)
	c := groups.Plan("web")
	if err := groups.Add(c, process.Process.Pid); err != nil {
		t.Error(err)
	}
	_ = process.Process.Kill()
	killed(t, process)
}

// TestScopeReconnects: a message bus may be started again while the agent runs.
func TestScopeReconnects(t *testing.T) {
	f := newFakeSystemd(t)
	s := f.open().(*scopes)
	before, err := s.bus.connected()
	if err != nil {
		t.Fatal(err)
	}
	before.Close()
	process := sleeper(t, 0)
	if err := s.Add(s.Plan("web"), process.Process.Pid); err != nil {
		t.Error(err)
	}
	_ = process.Process.Kill()
	killed(t, process)
}

// TestScopePatience: a systemd that does not answer is not waited for for ever.
func TestScopePatience(t *testing.T) {
	hangs := func(ctx context.Context) (*systemd.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := (&bus{dial: hangs}).connected(); !errors.Is(err, context.Canceled) {
		t.Errorf("connecting: %v", err)
	}
	f := newFakeSystemd(t)
	s := f.open().(*scopes)
	s.bus.patience = 0
	process := sleeper(t, 0)
	if err := s.Add(s.Plan("web"), process.Process.Pid); err == nil || !strings.Contains(err.Error(), "systemd did not start it within") {
		t.Errorf("starting a scope: %v", err)
	}
	_ = process.Process.Kill()
	killed(t, process)
}

// TestNoSystemd: what can't be reached is an error at once, from which NewCgroups falls back.
func TestNoSystemd(t *testing.T) {
	refused := func(context.Context) (*systemd.Conn, error) { return nil, unix.ECONNREFUSED }
	if _, err := openScopes(cgroupMount, "vmlet.slice", refused); !errors.Is(err, unix.ECONNREFUSED) {
		t.Error(err)
	}
	f := newFakeSystemd(t)
	if reply, err := f.conn.ReleaseName("org.freedesktop.systemd1"); err != nil {
		t.Fatal(reply, err)
	}
	if _, err := openScopes(f.mount, "vmlet.slice", f.dial); err == nil || !strings.Contains(err.Error(), "asking systemd") {
		t.Errorf("a bus without systemd: %v", err)
	}
}

// TestSystemdScope asks the systemd that runs here.
func TestSystemdScope(t *testing.T) {
	needRoot(t)
	if !systemdRuns() || cgroups.Mode() != cgroups.Unified {
		t.Skip("systemd with cgroup v2 alone does not run here")
	}
	groups, err := NewCgroups("", "vmlet-test", silent())
	if err != nil {
		t.Fatal(err)
	}
	defer groups.Close()
	c := groups.Plan("web")
	if c.Unit == "" {
		t.Fatalf("no scope: %+v", c)
	}
	process := sleeper(t, 0)
	start := time.Now()
	if err := groups.Add(c, process.Process.Pid); err != nil {
		t.Fatal(err)
	}
	t.Logf("scope %s after %v", c.Unit, time.Since(start))
	for property, want := range map[string]string{
		"ControlGroup": c.Path(), "Slice": "vmlet-test.slice", "KillSignal": strconv.Itoa(int(unix.SIGWINCH)), "CollectMode": "inactive-or-failed", "Delegate": "yes",
	} {
		out, err := exec.CommandContext(t.Context(), "systemctl", "show", "--value", "--property", property, c.Unit).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s=%s, want %s: %v", property, got, want, err)
		}
	}
	// Scopes have the policy from systemd 253 on.
	out, err := exec.CommandContext(t.Context(), "systemctl", "show", "--value", "--property=OOMPolicy", c.Unit).Output()
	if policy := strings.TrimSpace(string(out)); err != nil || policy != "" && policy != "continue" {
		t.Errorf("OOMPolicy=%s, %v; want continue", policy, err)
	}
	enabled, err := controllers(filepath.Join(cgroupMount, c.Path()), "cgroup.controllers")
	for _, want := range []string{"cpu", "memory", "io", "pids"} {
		if !slices.Contains(enabled, want) {
			t.Errorf("controllers %v, %v: want %s", enabled, err, want)
		}
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed(t, process)
	if err := groups.Remove(c); err != nil {
		t.Error(err)
	}
	again := groups.Plan("web")
	process = sleeper(t, 0)
	if err := groups.Add(again, process.Process.Pid); err != nil {
		t.Error("the VM's next run: ", err)
	}
	_ = process.Process.Kill()
	killed(t, process)
}
