package podvm

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"golang.org/x/sys/unix"
)

// unwatchedVariable is set for a run of this test program in a user namespace of its own,
// in which no inotify instance can be made.
const unwatchedVariable = "VMLET_TEST_NO_INOTIFY"

// TestPodBootsUnwatched: a pod's VM is started also where its user has used up all inotify
// instances, and where its shim comes after the agent has looked.
func TestPodBootsUnwatched(t *testing.T) {
	if os.Getenv(unwatchedVariable) == "" {
		runUnwatched(t)
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.servePod(t, a)
	vmtest.Eventually(t, "the agent has looked", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.dialled > 0 })
	n.container()
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
}

func runUnwatched(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), unwatchedVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("no user namespaces here: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v: %s", err, out)
	}
}

// lockedLog is what a log has, to be read while others write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestPodFillsNoLog: whatever a pod does and says, and however often, it costs the agent's
// log a short line for each kind of fault.
func TestPodFillsNoLog(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	var log lockedLog
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	unmount := n.servePod(t, a)
	for i := range 3 {
		why := fmt.Sprint("it is ", i, strings.Repeat(" very", fault.MaxMessage/5), " bad")
		proc := n.container(func(p *vmtest.Pod) { p.Described.VMMs = []byte(fmt.Sprintf(`[{"name":"qemu","error":%q}]`, why)) })
		wantText(t, n.refusal(t, proc), fmt.Sprint("it is ", i))
	}
	w.FailStep("launch", errors.New(strings.Repeat("no ", fault.MaxMessage/4)))
	wantText(t, n.refusal(t, n.container()), "no no")
	dialled := 0
	n.set(func() { n.dialErr, dialled = errors.New("liar"), n.dialled })
	vmtest.Eventually(t, "it is connected to, and again", func() bool {
		n.announce()
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.dialled >= dialled+2
	})
	unmount()
	for _, message := range []string{"the pod's VM was refused", "failed to connect to the shim of a pod's VM"} {
		if got := strings.Count(log.String(), message); got != 1 {
			t.Errorf("%d times: %s", got, message)
		}
	}
	for line := range strings.Lines(log.String()) {
		if len(line) > 2*fault.MaxLogged {
			t.Errorf("a line of %d bytes: %.200s", len(line), line)
		}
	}
}
