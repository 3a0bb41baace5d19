package saves

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

const imageID = "00000000-0000-4000-8000-000000000001"

// world is the agents of two nodes, with the pods a, b and c each, and their caller.
type world struct {
	t *testing.T
	*Saves
	agents map[string]*nodestest.Agent
	// begun has the directory of each save that an agent has begun; it ends with what ends has,
	// or undone, when its caller goes away.
	begun, undone chan string
	ends          chan error
	stop          context.CancelFunc
	stopped       chan struct{}
	// unwatched is why claims can't be watched, and watched those that are.
	unwatched error
	watched   []string

	// now and timers are the test's: timers of calls in the order of their beginning.
	mu     sync.Mutex
	now    time.Time
	timers []*timer
}

// timer fires when a test calls fire.
type timer struct {
	fire   func()
	resets chan time.Duration
}

func (t *timer) Reset(d time.Duration) bool { t.resets <- d; return true }
func (t *timer) Stop() bool                 { return true }

func (w *world) after(_ time.Duration, f func()) Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &timer{f, make(chan time.Duration, 99)}
	w.timers = append(w.timers, t)
	return t
}

// timer is that of the call that was the nth to begin.
func (w *world) timer(n int) *timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.timers[n]
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) watch(_ context.Context, vm types.NamespacedName, r Request) error {
	if len(w.begun) > 0 {
		w.t.Error("the agent was asked before the claims were watched")
	}
	for _, claim := range r.Watched {
		w.watched = append(w.watched, vm.String()+" "+claim)
	}
	return w.unwatched
}

func newWorld(t *testing.T) *world {
	t.Helper()
	authority, err := nodestest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	config, err := authority.Client()
	if err != nil {
		t.Fatal(err)
	}
	clients := nodes.New(nodes.Options{TLS: config, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	w := &world{
		t: t, agents: make(map[string]*nodestest.Agent), stopped: make(chan struct{}),
		begun: make(chan string, 9), undone: make(chan string, 9), ends: make(chan error), now: time.Unix(1, 0),
	}
	endpoints := make(map[string]nodes.Endpoint)
	for _, node := range []string{"node-a", "node-b"} {
		var vms []*nodev1.VirtualMachine
		for _, name := range []string{"a", "b", "c"} {
			vms = append(vms, nodestest.VM("shop", name, "uid-"+name, nodev1.State_STATE_RUNNING))
		}
		server, err := authority.Server(node)
		if err != nil {
			t.Fatal(err)
		}
		w.agents[node] = nodestest.NewAgent(vms...)
		w.agents[node].SetSave(w.save)
		address, stop, err := w.agents[node].Serve("127.0.0.1:0", server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		endpoints[node] = nodes.Endpoint{Address: address}
	}
	clients.SetAgents(endpoints)
	w.Saves = New(Options{PerNode: 1, Client: clients.Client, Watch: w.watch, Now: w.clock, After: w.after})
	return w
}

// save is how agents save VMs.
func (w *world) save(ctx context.Context, r *nodev1.SaveVMRequest) (*nodev1.SaveResult, error) {
	w.begun <- r.GetDirectory() + r.GetAttachmentPodUid()
	select {
	case err := <-w.ends:
		if err != nil {
			return nil, err
		}
		return &nodev1.SaveResult{ImageId: imageID, ImageBytes: 7}, nil
	case <-ctx.Done():
		w.undone <- r.GetDirectory()
		return nil, ctx.Err()
	}
}

// run runs the calls until the test ends, or stop is called.
func (w *world) run() *world {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.stop = cancel
	go func() {
		defer close(w.stopped)
		_ = w.Run(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-w.stopped })
	return w
}

func vmOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: "vm-" + name}
}

// request is to save a VM to a directory of its name.
func request(node, name string) Request {
	return Request{Pod: name, UID: types.UID("uid-" + name), Node: node, Directory: "/memory/" + name}
}

func (w *world) take(what string, from chan string, want string) {
	w.t.Helper()
	select {
	case got := <-from:
		if got != want {
			w.t.Fatalf("%s: %s, want %s", what, got, want)
		}
	case <-w.t.Context().Done():
		w.t.Fatalf("never %s: %s", what, want)
	}
}

// until waits for what is known of a call to be as wanted; has: there is one.
func (w *world) until(name string, wanted func(c Call, has bool) bool) Call {
	w.t.Helper()
	for {
		c, has := w.Look(vmOf(name))
		if wanted(c, has) {
			return c
		}
		select {
		case <-w.Changed():
		case <-w.t.Context().Done():
			w.t.Fatalf("the call of %s: %+v, %v", name, c, has)
		}
	}
}

func ended(c Call, _ bool) bool { return c.State == Ended }

// TestSaved: what is asked for is what the agent is asked for, and its result is kept.
func TestSaved(t *testing.T) {
	w := newWorld(t).run()
	r := request("node-a", "a")
	w.Start(vmOf("a"), r)
	w.take("begun", w.begun, "/memory/a")
	w.Start(vmOf("a"), request("node-a", "b")) // it has one
	w.ends <- nil
	c := w.until("a", ended)
	if c.Err != nil || c.Result.GetImageId() != imageID || c.Result.GetImageBytes() != 7 || !reflect.DeepEqual(c.Request, r) || c.At != time.Unix(1, 0) || c.Unsure {
		t.Errorf("it ended as %+v", c)
	}
	r = Request{Pod: "b", UID: "uid-b", Node: "node-a", Directory: "b", Attachment: "uid-x"}
	w.Start(vmOf("b"), r)
	w.take("begun", w.begun, "buid-x")
	w.ends <- nil
	if c := w.until("b", ended); c.Err != nil {
		t.Error(c.Err)
	}
}

// TestWatched: a VM is saved once the claims of its disks are watched, and not before.
func TestWatched(t *testing.T) {
	w := newWorld(t).run()
	r := request("node-a", "a")
	r.Watched = []string{"pg", "wal"}
	w.unwatched = errors.New("claim pg is used by pod backup, too")
	w.Start(vmOf("a"), r)
	c := w.until("a", ended)
	if c.Err == nil || c.Err.Error() != "claim pg is used by pod backup, too" || status.Code(c.Err) != codes.FailedPrecondition || c.Unsure {
		t.Errorf("it ended as %+v", c)
	}
	if len(w.begun) > 0 {
		t.Errorf("the agent has begun %s", <-w.begun)
	}
	w.unwatched = nil
	w.Start(vmOf("a"), r)
	w.take("begun", w.begun, "/memory/a")
	w.ends <- nil
	if c := w.until("a", ended); c.Err != nil || c.Failures != 0 {
		t.Errorf("it ended as %+v", c)
	}
	if want := []string{"shop/vm-a pg", "shop/vm-a wal"}; !slices.Equal(w.watched, slices.Concat(want, want)) {
		t.Errorf("watched %q", w.watched)
	}
}

// TestQueue: one VM of a node is saved after the other, in the order of their coming; other nodes,
// and guests that suspend themselves, wait for nobody.
func TestQueue(t *testing.T) {
	w := newWorld(t).run()
	w.agents["node-a"].SetSuspend(func(context.Context, *nodev1.SuspendVMRequest) error { return nil })
	w.Start(vmOf("a"), request("node-a", "a"))
	w.take("begun", w.begun, "/memory/a")
	w.Start(vmOf("b"), request("node-a", "b"))
	w.Start(vmOf("c"), request("node-a", "c"))
	place := func(name string, ahead int) {
		t.Helper()
		w.until(name, func(c Call, _ bool) bool { return c.State == Queued && c.Ahead == ahead })
	}
	place("b", 1)
	place("c", 2)
	w.Start(vmOf("other"), request("node-b", "a"))
	w.take("begun", w.begun, "/memory/a")
	w.ends <- nil // of either
	w.ends <- nil
	w.until("other", ended)
	w.take("begun", w.begun, "/memory/b")
	place("c", 1)
	w.Start(vmOf("suspended"), Request{Pod: "a", UID: "uid-a", Node: "node-a"})
	if c := w.until("suspended", ended); c.Err != nil {
		t.Errorf("suspended: %v", c.Err)
	}
	w.ends <- nil
	w.take("begun", w.begun, "/memory/c")
	w.ends <- nil
	w.until("c", ended)
}

// TestHangs: a save that writes nothing for a time goes on, and no other VM of the node waits for it.
func TestHangs(t *testing.T) {
	w := newWorld(t).run()
	undone := make(chan struct{})
	w.agents["node-a"].SetSave(func(ctx context.Context, r *nodev1.SaveVMRequest) (*nodev1.SaveResult, error) {
		w.begun <- r.GetDirectory()
		if r.GetDirectory() == "/memory/a" {
			<-ctx.Done()
			close(undone)
			return nil, ctx.Err()
		}
		return &nodev1.SaveResult{ImageId: imageID}, nil
	})
	w.Start(vmOf("a"), request("node-a", "a"))
	w.take("begun", w.begun, "/memory/a")
	w.Start(vmOf("b"), request("node-a", "b"))
	w.until("b", func(c Call, _ bool) bool { return c.State == Queued && c.Ahead == 1 })
	w.timer(0).fire()
	w.take("begun", w.begun, "/memory/b")
	if c := w.until("b", ended); c.Err != nil {
		t.Errorf("b: %v", c.Err)
	}
	if c, _ := w.Look(vmOf("a")); c.State != Running || !c.Aside {
		t.Errorf("the save that hangs: %+v, want that it goes on, set aside", c)
	}
	w.Cancel(vmOf("a"))
	<-undone
	w.until("a", func(_ Call, has bool) bool { return !has })
}

// TestSlow: a save keeps its place for as long as it writes, however slowly, but not for ever: what it
// writes is its shim's word.
func TestSlow(t *testing.T) {
	w := newWorld(t).run()
	reports := make(chan uint64)
	w.agents["node-a"].SetSave(func(ctx context.Context, r *nodev1.SaveVMRequest) (*nodev1.SaveResult, error) {
		for bytes := range reports {
			if err := nodestest.Report(ctx, bytes); err != nil {
				return nil, err
			}
		}
		return &nodev1.SaveResult{ImageId: imageID}, nil
	})
	w.Start(vmOf("a"), request("node-a", "a"))
	reports <- 2
	resets := w.timer(0).resets
	for _, bytes := range []uint64{1, 2} { // as agents report first, and as was sent
		if d := <-resets; d != progressPatience {
			t.Errorf("after %d bytes it has %v", bytes, d)
		}
	}
	w.pass(longest - time.Second)
	reports <- 2 // nothing new
	reports <- 3
	<-resets
	w.pass(time.Second)
	reports <- 4
	close(reports)
	if c := w.until("a", ended); c.Err != nil || c.Aside {
		t.Errorf("it ended as %+v", c)
	}
	if n := len(resets); n != 0 {
		t.Errorf("%d more times it was given time, want none: without a new byte, and after %v", n, longest)
	}
}

// TestHangingBounded: of saves that hang a namespace has a few on a node, and its further VMs wait for
// these alone, as others don't.
func TestHangingBounded(t *testing.T) {
	w := newWorld(t).run()
	agent := w.agents["node-a"]
	start := func(namespace, name string) types.NamespacedName {
		agent.Set(nodestest.VM(namespace, name, namespace+name, nodev1.State_STATE_RUNNING))
		vm := types.NamespacedName{Namespace: namespace, Name: "vm-" + name}
		w.Start(vm, request("node-a", name))
		return vm
	}
	var last types.NamespacedName
	for i := range aside + 2 {
		last = start("hogs", fmt.Sprint(i))
	}
	for i := range aside {
		w.take("begun", w.begun, fmt.Sprint("/memory/", i))
		w.timer(i).fire()
	}
	if c, _ := w.Look(last); c.State != Queued || !c.Barred {
		t.Errorf("the last one: %+v, want that it waits for those of its namespace", c)
	}
	start("shop", "other")
	w.take("begun", w.begun, "/memory/other")
	w.ends <- nil // of any
}

// TestUrgent: of a node that ends its pods no save waits for another.
func TestUrgent(t *testing.T) {
	w := newWorld(t).run()
	w.Start(vmOf("a"), request("node-a", "a"))
	w.take("begun", w.begun, "/memory/a")
	urgent := request("node-a", "b")
	urgent.Urgent = true
	w.Start(vmOf("b"), urgent)
	w.take("begun", w.begun, "/memory/b")
	w.ends <- nil
	w.ends <- nil
	w.until("a", ended)
	w.until("b", ended)
}

// TestCancel: a call under way is undone by its agent before it is forgotten; one that waits is
// forgotten at once, and others move up.
func TestCancel(t *testing.T) {
	w := newWorld(t).run()
	for _, name := range []string{"a", "b", "c"} {
		w.Start(vmOf(name), request("node-a", name))
	}
	w.take("begun", w.begun, "/memory/a")
	w.Cancel(vmOf("b"))
	if c, has := w.Look(vmOf("b")); has {
		t.Errorf("b: %+v", c)
	}
	w.until("c", func(c Call, _ bool) bool { return c.Ahead == 1 })
	w.Cancel(vmOf("a"))
	w.take("undone", w.undone, "/memory/a")
	w.until("a", func(_ Call, has bool) bool { return !has })
	w.take("begun", w.begun, "/memory/c")
	w.ends <- nil
	w.until("c", ended)
	w.Cancel(vmOf("c"))
	if _, has := w.Look(vmOf("c")); has {
		t.Error("a call that has ended is not forgotten")
	}
	w.Cancel(vmOf("nobody"))
}

// TestCutOff: a save that is cut off as it is done is not forgotten as one that was undone.
func TestCutOff(t *testing.T) {
	w := newWorld(t).run()
	undoes, done := make(chan struct{}), make(chan struct{})
	w.agents["node-a"].SetSave(func(ctx context.Context, r *nodev1.SaveVMRequest) (*nodev1.SaveResult, error) {
		w.begun <- r.GetDirectory()
		<-ctx.Done()
		if r.GetDirectory() == "/memory/b" {
			<-done
			return &nodev1.SaveResult{ImageId: imageID}, nil
		}
		<-undoes
		return nil, ctx.Err()
	})
	w.Start(vmOf("a"), request("node-a", "a"))
	w.take("begun", w.begun, "/memory/a")
	w.Cancel(vmOf("a"))
	if c, has := w.Look(vmOf("a")); !has || !c.Active() || !c.Cancelled {
		t.Errorf("while its agent undoes it: %+v, %v", c, has)
	}
	close(undoes)
	w.until("a", func(_ Call, has bool) bool { return !has })

	w.Start(vmOf("b"), request("node-a", "b"))
	w.take("begun", w.begun, "/memory/b")
	w.Cancel(vmOf("b"))
	close(done)
	if c := w.until("b", ended); !c.Unsure || !c.Cancelled || c.Err == nil {
		t.Errorf("a save that was done: %+v", c)
	}
	w.Cancel(vmOf("b"))
	if _, has := w.Look(vmOf("b")); has {
		t.Error("it is not forgotten when nobody needs it any more")
	}
}

// TestCutOffCodes: an agent that did not say how a save ended may have done it; one that refused it did not.
func TestCutOffCodes(t *testing.T) {
	open := []codes.Code{codes.Canceled, codes.Unavailable, codes.DeadlineExceeded, codes.Unknown}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if got, want := cutOff(status.Error(code, "")), slices.Contains(open, code); got != want {
			t.Errorf("%v: cut off %v, want %v", code, got, want)
		}
	}
	if !cutOff(errors.New("no status")) {
		t.Error("an error without a code says how the save ended")
	}
}

// TestFailures: they are counted while they follow each other for one pod, and keep their code and a
// bounded part of the agent's words.
func TestFailures(t *testing.T) {
	w := newWorld(t).run()
	r := request("node-a", "a")
	fail := func(r Request, err error) Call {
		t.Helper()
		w.Start(vmOf("a"), r)
		w.take("begun", w.begun, r.Directory)
		w.ends <- err
		return w.until("a", ended)
	}
	long := strings.Repeat("ü", 1000)
	if c := fail(r, status.Error(codes.ResourceExhausted, long)); c.Failures != 1 || status.Code(c.Err) != codes.ResourceExhausted || len(c.Err.Error()) > maxWords || !strings.HasPrefix(c.Err.Error(), "ü") {
		t.Errorf("%d failures, %v of %d bytes", c.Failures, status.Code(c.Err), len(c.Err.Error()))
	}
	if c := fail(r, errors.New("QEMU said no")); c.Failures != 2 || c.Err.Error() != "QEMU said no" {
		t.Errorf("%d failures, the second: %v", c.Failures, c.Err)
	}
	next := request("node-a", "b")
	if c := fail(next, errors.New("no")); c.Failures != 1 {
		t.Errorf("%d failures of another pod", c.Failures)
	}
	if c := fail(next, nil); c.Failures != 0 || c.Err != nil {
		t.Errorf("%d failures after a success", c.Failures)
	}
}

// TestWords: what is no answer is a failure.
func TestWords(t *testing.T) {
	w := newWorld(t).run()
	w.agents["node-a"].SetSave(func(context.Context, *nodev1.SaveVMRequest) (*nodev1.SaveResult, error) { return nil, nil })
	for name, want := range map[string]string{"node-a": "without a result", "node-c": "no vmlet-agent"} {
		w.Start(vmOf(name), request(name, "a"))
		if c := w.until(name, ended); c.Err == nil || !strings.Contains(c.Err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, c.Err, want)
		}
	}
	w.agents["node-a"].SetSuspend(func(context.Context, *nodev1.SuspendVMRequest) error {
		return status.Error(codes.FailedPrecondition, "the guest has no agent")
	})
	w.Start(vmOf("s"), Request{Pod: "b", UID: "uid-b", Node: "node-a"})
	if c := w.until("s", ended); status.Code(c.Err) != codes.FailedPrecondition {
		t.Errorf("suspended: %v", c.Err)
	}
}

// TestLeaves: a controller that ends takes its saves with it, and waits until that is so.
func TestLeaves(t *testing.T) {
	w := newWorld(t)
	w.Start(vmOf("a"), request("node-a", "a"))
	w.Start(vmOf("b"), request("node-a", "b"))
	if c, _ := w.Look(vmOf("a")); c.State != Queued {
		t.Errorf("a call is made though nobody leads: %+v", c)
	}
	w.run()
	w.take("begun", w.begun, "/memory/a")
	w.stop()
	<-w.stopped
	w.take("undone", w.undone, "/memory/a")
	if c, _ := w.Look(vmOf("a")); c.State != Ended || c.Err == nil {
		t.Errorf("it ended as %+v", c)
	}
	w.Start(vmOf("c"), request("node-b", "c"))
	select {
	case got := <-w.begun:
		t.Errorf("%s begun by one who has ended", got)
	default:
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
}

// TestMany: of many VMs on a node each is saved, never two at once.
func TestMany(t *testing.T) {
	w := newWorld(t)
	w.agents["node-a"].SetSave(func(context.Context, *nodev1.SaveVMRequest) (*nodev1.SaveResult, error) {
		return &nodev1.SaveResult{ImageId: imageID}, nil
	})
	const many = 40
	for i := range many {
		w.agents["node-a"].Set(nodestest.VM("shop", fmt.Sprint(i), fmt.Sprint(i), nodev1.State_STATE_RUNNING))
		w.Start(vmOf(fmt.Sprint(i)), request("node-a", fmt.Sprint(i)))
	}
	if c, _ := w.Look(vmOf("39")); c.Ahead != many-1 {
		t.Errorf("%d before the last", c.Ahead)
	}
	w.run()
	for i := range many {
		if c := w.until(fmt.Sprint(i), ended); c.Err != nil {
			t.Errorf("%d: %v", i, c.Err)
		}
	}
}

// TestBounded: of an agent's error the code stays, a part of its words, and what is wrong in parts.
func TestBounded(t *testing.T) {
	parts := []contract.Fault{{Field: "disks[0].path", Text: "in use"}}
	long, err := status.New(codes.FailedPrecondition, strings.Repeat("x", 2*maxWords)).WithDetails(faults.Detail(parts))
	if err != nil {
		t.Fatal(err)
	}
	got := bounded(long.Err())
	if status.Code(got) != codes.FailedPrecondition {
		t.Errorf("code %v", status.Code(got))
	}
	if n := len(got.Error()); n != maxWords {
		t.Errorf("%d bytes, want %d", n, maxWords)
	}
	if got := faults.OfError(got); !reflect.DeepEqual(got, parts) {
		t.Errorf("%+v, want %+v", got, parts)
	}
}
