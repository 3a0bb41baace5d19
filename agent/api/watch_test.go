package api

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstPod  = "5f2b9c1e-8a34-4d6f-9b7a-0c1d2e3f4a5b"
	secondPod = "6f2b9c1e-8a34-4d6f-9b7a-0c1d2e3f4a5b"
)

// fakePods are VMs of pods that a test takes up.
type fakePods struct {
	takenUp chan struct{}
	ended   types.UID
}

func (p *fakePods) TakenUp() <-chan struct{} { return p.takenUp }

func (p *fakePods) ConfirmEnded(_ context.Context, pod types.UID) error {
	if pod != p.ended {
		return fault.Errorf(codes.FailedPrecondition, "it runs")
	}
	return nil
}

// enter lists a VM of a pod, as those do who run them.
func (a *testAgent) enter(name, uid string) *vm.VM {
	record := &nodev1.VirtualMachine{
		Id: uid, Spec: &specv1.VirtualMachineSpec{Name: name, CloudInit: &specv1.CloudInit{UserData: "secret"}},
		Status: &nodev1.VirtualMachineStatus{
			State: lifecycle.Created, Pod: &nodev1.PodReference{Namespace: "default", Name: name, Uid: uid},
			EffectiveSpec: &specv1.VirtualMachineSpec{MachineType: "q35", CloudInit: &specv1.CloudInit{UserData: "secret"}},
		},
	}
	m, done := a.Enter("default/"+name, nil, record)
	done()
	return m
}

// watching is a caller of WatchVMs.
type watching struct {
	*testing.T
	stream interface {
		Recv() (*nodev1.WatchVMsResponse, error)
	}
}

// next is what comes next, in a word: "complete", "gone UID", "UID state".
func (w watching) next() string {
	w.Helper()
	m, err := w.stream.Recv()
	if err != nil {
		w.Fatal(err)
	}
	switch u := m.GetUpdate().(type) {
	case *nodev1.WatchVMsResponse_Complete:
		return "complete"
	case *nodev1.WatchVMsResponse_Gone:
		return "gone " + u.Gone.GetUid()
	case *nodev1.WatchVMsResponse_Vm:
		if text := u.Vm.String(); strings.Contains(text, "secret") || u.Vm.Spec != nil {
			w.Errorf("what the user wrote is sent: %s", text)
		}
		if u.Vm.GetStatus().GetEffectiveSpec().GetMachineType() != "q35" {
			w.Errorf("the effective specification is missing: %v", u.Vm)
		}
		return u.Vm.GetStatus().GetPod().GetUid() + " " + lifecycle.Name(u.Vm.GetStatus().GetState())
	}
	return m.String()
}

func (w watching) want(words ...string) {
	w.Helper()
	for _, want := range words {
		if got := w.next(); got != want {
			w.Fatalf("%s, want %s", got, want)
		}
	}
}

// TestWatchVMs: all that is there, the mark, and then what changes; of the node's own VMs
// nothing.
func TestWatchVMs(t *testing.T) {
	a := newWorld(t).start()
	pods := &fakePods{takenUp: make(chan struct{}), ended: firstPod}
	client := serveNode(t, filepath.Join(t.TempDir(), "s"), nil, &NodeService{VMs: a.Manager, Node: a.node, Pods: pods})
	if _, err := a.Create(t.Context(), &specv1.VirtualMachineSpec{Name: "own"}); err != nil {
		t.Fatal(err)
	}
	first := a.enter("first", firstPod)
	stream, err := client.WatchVMs(t.Context(), &nodev1.WatchVMsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w := watching{t, stream}
	w.want(firstPod + " created")
	second := a.enter("second", secondPod)
	w.want(secondPod + " created")
	close(pods.takenUp)
	w.want("complete")
	starts := func(vm *nodev1.VirtualMachine) { vm.Status.State = lifecycle.Starting }
	if err := first.Change(starts); err != nil {
		t.Fatal(err)
	}
	w.want(firstPod + " starting")
	a.Dismiss(second)
	w.want("gone " + secondPod)
	a.end()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the agent's end: %v", err)
	}
}

// TestWatchedNewestAlone: who has not looked for a while is sent the newest state, once.
func TestWatchedNewestAlone(t *testing.T) {
	a := newWorld(t).start()
	var sent []string
	w := watched{sent: make(map[types.UID]*nodev1.VirtualMachine), send: func(m *nodev1.WatchVMsResponse) error {
		sent = append(sent, m.GetVm().GetStatus().GetMessage()+m.GetGone().GetUid())
		return nil
	}}
	m, short := a.enter("first", firstPod), a.enter("second", secondPod)
	for _, message := range []string{"a", "b", "c"} {
		if err := m.Change(func(vm *nodev1.VirtualMachine) { vm.Status.Message = message }); err != nil {
			t.Fatal(err)
		}
	}
	a.Dismiss(short)
	for range 2 {
		if err := w.update(a.All()); err != nil {
			t.Fatal(err)
		}
	}
	if len(sent) != 1 || sent[0] != "c" {
		t.Errorf("sent %q", sent)
	}
}

// TestOutlineBounded: whatever a pod has had kept of its VM, what is sent of it has a bound.
func TestOutlineBounded(t *testing.T) {
	pod := &nodev1.PodReference{Namespace: "default", Name: "x", Uid: firstPod}
	long := strings.Repeat("x", maxWatched)
	for name, s := range map[string]*nodev1.VirtualMachineStatus{
		"specification": {EffectiveSpec: &specv1.VirtualMachineSpec{MachineType: long}, HypervisorReason: "kept"},
		"version":       {Vmm: &nodev1.Vmm{Version: long}, Message: long},
	} {
		s.Pod, s.State = pod, lifecycle.Running
		before := proto.CloneOf(s)
		out := outline(&nodev1.VirtualMachine{Id: "id", Status: s})
		if n := proto.Size(out); n > maxWatched {
			t.Errorf("%s: %d bytes", name, n)
		}
		if out.Id != "id" || out.Status.State != lifecycle.Running || !proto.Equal(out.Status.Pod, pod) {
			t.Errorf("%s: %v is left", name, out)
		}
		if out.Status.HypervisorReason != before.HypervisorReason {
			t.Errorf("%s: more was left out than had to be", name)
		}
		if !proto.Equal(before, s) {
			t.Errorf("%s: the record itself was changed", name)
		}
	}
}

// TestConfirmPodEnded passes on the answer, and refuses what is no UID.
func TestConfirmPodEnded(t *testing.T) {
	a := newWorld(t).start()
	service := &NodeService{VMs: a.Manager, Node: a.node, Pods: &fakePods{ended: firstPod}, Machine: "c0ffee00"}
	client := serveNode(t, filepath.Join(t.TempDir(), "s"), nil, service)
	for _, test := range []struct {
		uid  string
		want codes.Code
	}{
		{firstPod, codes.OK}, {secondPod, codes.FailedPrecondition}, {"", codes.InvalidArgument}, {"1", codes.InvalidArgument},
	} {
		said, err := client.ConfirmPodEnded(t.Context(), &nodev1.ConfirmPodEndedRequest{PodUid: test.uid})
		if status.Code(err) != test.want {
			t.Errorf("%q: %v, want %v", test.uid, err, test.want)
		}
		if err == nil && said.GetMachine() != service.Machine {
			t.Errorf("it is said of machine %q, want %q", said.GetMachine(), service.Machine)
		}
	}
	service.Pods = nil
	_, err := client.ConfirmPodEnded(t.Context(), &nodev1.ConfirmPodEndedRequest{PodUid: firstPod})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("an agent without pods: %v", err)
	}
}
