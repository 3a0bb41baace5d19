package podvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// confirm asks for a promise about the test's pod and returns the code of the answer.
func confirm(p *Runner) codes.Code {
	return status.Code(fault.ToStatus(p.ConfirmEnded(context.Background(), podUID)))
}

// TestConfirmEnded: the promise is made when neither a VM nor a process is there that may be
// one, and not before all pods were looked into.
func TestConfirmEnded(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	p := n.runner(a)
	want := func(when string, code codes.Code) {
		t.Helper()
		if got := confirm(p); got != code {
			t.Errorf("%s: %v, want %v", when, got, code)
		}
	}
	want("before all pods were looked into", codes.Unavailable)
	p.arrivals.list(nil)
	n.set(func() { n.processes = errors.New("no /proc") })
	want("without knowing the processes", codes.Unavailable)
	n.set(func() { n.processes, n.process = nil, &pods.Process{PID: 7, Name: "qemu"} })
	want("with a process", codes.FailedPrecondition)
	n.set(func() { n.process = nil })

	n.serveWith(t, a, p)
	proc := n.container()
	vmtest.Eventually(t, "it runs, as no promise was made", a.is(lifecycle.Running))
	want("while it runs", codes.FailedPrecondition)
	proc.End(&shim.Exit{Reason: shim.ReasonShutdown})
	vmtest.Eventually(t, "its end is seen", a.is(lifecycle.Stopped))
	// The launch may be over a moment after its VM.
	vmtest.Eventually(t, "a promise after its end", func() bool { return confirm(p) == codes.OK })
	want("again", codes.OK)
}

// TestPromiseKept: no VM of that pod is launched after the promise, and one of another is.
func TestPromiseKept(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	p := n.runner(a)
	p.arrivals.list(nil)
	if code := confirm(p); code != codes.OK {
		t.Fatal(code)
	}
	n.serveWith(t, a, p)
	wantText(t, n.refusal(t, n.container()), "promised the cluster")
	for _, m := range a.All() {
		t.Errorf("vm %s is listed", m.Name())
	}
}

// TestLaunchAndPromise: of a launch and a promise at the same time one is refused.
func TestLaunchAndPromise(t *testing.T) {
	var p promises
	first, err := p.launch(podUID)
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.launch(podUID)
	if err != nil {
		t.Fatal(err)
	}
	first()
	if p.promise(podUID) {
		t.Error("a promise was made while a VM is launched")
	}
	second()
	if !p.promise(podUID) {
		t.Error("no promise was made when the launches were over")
	}
	if _, err := p.launch(podUID); err == nil {
		t.Error("a VM is launched after the promise")
	}
	p.forget(podUID)
	if _, err := p.launch(podUID); err != nil {
		t.Errorf("a promise that nobody was told of is kept: %v", err)
	}
	if err := p.keep(podUID); err == nil {
		t.Error("a promise is kept that was taken back meanwhile")
	}
}

// TestPromiseOutlivesAgent: the next agent starts no VM of a pod whose end was promised, though nobody has
// deleted the pod and its kubelet starts the container again.
func TestPromiseOutlivesAgent(t *testing.T) {
	folder := t.TempDir()
	w := newWorld(t)
	first, n := w.start(), newFakeNode(w)
	p := n.promising(t, first, folder)
	if code := confirm(p); code != codes.OK {
		t.Fatal(code)
	}
	first.end()
	second := w.start()
	n.serveWith(t, second, n.promising(t, second, folder))
	wantText(t, n.refusal(t, n.container()), "promised the cluster")
}

// promising is a runner that has looked into all pods, with the promises of a folder.
func (n *fakeNode) promising(t *testing.T, a *testAgent, folder string) *Runner {
	t.Helper()
	p := n.runner(a)
	p.arrivals.list(nil)
	var err error
	if p.promises, err = readPromises(folder); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPromisesAreKept: the last of them are, and what was not told to anybody isn't.
func TestPromisesAreKept(t *testing.T) {
	folder := t.TempDir()
	read := func() *promises {
		t.Helper()
		p, err := readPromises(folder)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := read()
	uid := func(n int) types.UID { return types.UID(fmt.Sprintf("%036d", n)) }
	for i := range maxPromises + 3 {
		p.promise(uid(i))
		if err := p.keep(uid(i)); err != nil {
			t.Fatal(err)
		}
	}
	p.promise("taken back")
	p.forget("taken back")
	p.promise(uid(5))
	p.forget(uid(5)) // it was told before
	p = read()
	if n := len(p.ended); n != maxPromises {
		t.Errorf("%d promises are remembered, want %d", n, maxPromises)
	}
	for pod, kept := range map[types.UID]bool{uid(2): false, uid(3): true, uid(5): true, uid(maxPromises + 2): true, "taken back": false} {
		if _, err := p.launch(pod); (err != nil) != kept {
			t.Errorf("launch of pod %s: %v", pod, err)
		}
	}
}

// TestPromiseThatCantBeKept is made to nobody, and what can't be read is no empty list.
func TestPromiseThatCantBeKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "missing")
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	p := n.promising(t, a, folder)
	if code := confirm(p); code != codes.Unavailable {
		t.Errorf("a promise that can't be written down: %v", code)
	}
	if _, err := p.promises.launch(podUID); err != nil {
		t.Errorf("it holds though nobody was told: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(folder, promisesName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := readPromises(folder); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("what can't be read: %v", err)
	}
}

// TestDeletedPod: a pod that was deleted before its VM was started gets none any more, also of
// an agent that knows of no promise.
func TestDeletedPod(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	n.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	n.servePod(t, a)
	wantText(t, n.refusal(t, n.container()), "default/web", "being deleted")
}

// TestTakenUp: all has been taken up when each volume that was there has been looked into.
func TestTakenUp(t *testing.T) {
	v, other := pods.Volume{UID: podUID, Dir: "/a"}, pods.Volume{UID: "other", Dir: "/b"}
	for _, test := range []struct {
		name  string
		steps func(*arrivals)
		done  bool
	}{
		{"not listed", func(*arrivals) {}, false},
		{"looked into before the list", func(a *arrivals) { a.looked(other) }, false},
		{"none", func(a *arrivals) { a.list(nil) }, true},
		{"one left", func(a *arrivals) { a.list([]pods.Volume{v, other}); a.looked(v); a.looked(v) }, false},
		{"both", func(a *arrivals) { a.list([]pods.Volume{v, other}); a.looked(v); a.looked(other) }, true},
		{"too long", func(a *arrivals) { a.list([]pods.Volume{v}); a.end(); a.looked(v) }, true},
	} {
		a := newArrivals()
		test.steps(a)
		select {
		case <-a.done:
			if !test.done {
				t.Errorf("%s: all has been taken up", test.name)
			}
		default:
			if test.done {
				t.Errorf("%s: something is waited for", test.name)
			}
		}
	}
}

// TestTakenUpAfterAdoption: a VM that ran before the agent's start is listed by the time that
// all has been taken up, and a volume without a shim holds nothing up.
func TestTakenUpAfterAdoption(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	first := w.start()
	n.servePod(t, first)
	n.container()
	vmtest.Eventually(t, "it runs", first.is(lifecycle.Running))
	first.end()

	second := w.start()
	empty := newFakeNode(w)
	for _, node := range []*fakeNode{n, empty} {
		p := node.runner(second)
		p.arrivals.list([]pods.Volume{{UID: podUID, Dir: node.dir}})
		node.serveWith(t, second, p)
		<-p.TakenUp()
		if node == n && !second.is(lifecycle.Running)() {
			t.Error("all has been taken up, and the VM is not listed")
		}
	}
}
