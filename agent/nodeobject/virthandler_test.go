package nodeobject

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var neighbourTime = time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)

func newTestNeighbour(t *testing.T, takeOver bool) *Neighbour {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	n := NewNeighbour(NeighbourConfig{Watch: NewWatch(nil, log), Log: log, Namespaces: []string{"kubevirt"}, TakeOver: takeOver})
	n.now = func() time.Time { return neighbourTime }
	return n
}

func daemonPod(namespace, owner string) *object {
	return &object{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "virt-handler-x", UID: types.UID(namespace), ResourceVersion: "1",
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: owner}},
	}}
}

// beaten is a Node with a heartbeat that some manager wrote some time ago.
func beaten(manager string, ago time.Duration) *object {
	n := newFakeNode()
	n.set(manager, annotation(contract.AnnotationHeartbeat), neighbourTime.Add(-ago).Format(time.RFC3339))
	return n.object()
}

func TestJudge(t *testing.T) {
	pods := func(all ...*object) objects {
		found := objects{}
		for _, p := range all {
			found[p.UID] = p
		}
		return found
	}
	quiet := newFakeNode().object()
	nonsense := newFakeNode()
	nonsense.set(virtHandler, annotation(contract.AnnotationHeartbeat), "soon")
	for name, c := range map[string]struct {
		pods        objects
		node        *object
		waited      impatience
		takeOver    bool
		known, sure bool
		aside       bool
	}{
		"not looked yet":              {node: quiet},
		"nobody":                      {pods: pods(), node: quiet, known: true, sure: true},
		"the node isn't known":        {pods: pods()},
		"pods can't be listed":        {node: quiet, waited: impatience{all: true, pods: true}, known: true, sure: true},
		"pods can't, but it beats":    {node: beaten(virtHandler, time.Minute), waited: impatience{all: true}, known: true, aside: true},
		"nothing can be asked":        {waited: impatience{all: true}, known: true},
		"its pod":                     {pods: pods(daemonPod("kubevirt", virtHandler)), node: quiet, known: true, sure: true, aside: true},
		"its pod, taken over":         {pods: pods(daemonPod("kubevirt", virtHandler)), node: quiet, takeOver: true, known: true, sure: true},
		"in anybody's namespace":      {pods: pods(daemonPod("mine", virtHandler)), node: quiet, known: true, sure: true},
		"another's pod":               {pods: pods(daemonPod("kubevirt", "mine")), node: quiet, known: true, sure: true},
		"its heartbeat":               {pods: pods(), node: beaten(virtHandler, 4*time.Minute), known: true, sure: true, aside: true},
		"its heartbeat, long ago":     {pods: pods(), node: beaten(virtHandler, 6*time.Minute), known: true, sure: true},
		"its heartbeat, far ahead":    {pods: pods(), node: beaten(virtHandler, -time.Hour), known: true, sure: true},
		"another's heartbeat":         {pods: pods(), node: beaten("vmlet", time.Second), known: true, sure: true},
		"a heartbeat that is no time": {pods: pods(), node: nonsense.object(), known: true, sure: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNeighbour(t, c.takeOver)
			s, again := n.judge(c.pods, c.node, c.waited)
			if s.Known != c.known || s.Sure != c.sure || s.Aside != c.aside || c.aside && s.Reason == "" {
				t.Errorf("%+v", s)
			}
			if c.aside && c.pods == nil && again <= 0 {
				t.Error("a heartbeat that gets old is not looked at again")
			}
		})
	}
}

// When its pod has gone the heartbeat that it left behind counts for nothing; a
// later one does.
func TestJudgeLeaves(t *testing.T) {
	n := newTestNeighbour(t, false)
	node := beaten(virtHandler, time.Second)
	if s, _ := n.judge(objects{"kubevirt": daemonPod("kubevirt", virtHandler)}, node, impatience{}); !s.Aside {
		t.Fatal(s)
	}
	if s, _ := n.judge(objects{}, node, impatience{}); s.Aside {
		t.Fatal(s)
	}
	if s, _ := n.judge(objects{}, beaten(virtHandler, -time.Second), impatience{}); !s.Aside {
		t.Fatal(s)
	}
}

// A heartbeat that changes is as new as it was seen, wherever the clocks have been put.
func TestJudgeClockIsPut(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	for name, put := range map[string]time.Duration{"forward": years, "back": -years} {
		t.Run(name, func(t *testing.T) {
			n := newTestNeighbour(t, false)
			now := neighbourTime
			n.now = func() time.Time { return now }
			expect := func(ago time.Duration, aside bool) {
				t.Helper()
				if s, again := n.judge(objects{}, beaten(virtHandler, ago), impatience{}); s.Aside != aside || aside && again > heartbeatFresh {
					t.Errorf("%+v, and again in %v", s, again)
				}
			}
			expect(years, false) // of one that left long ago
			expect(0, true)
			now = now.Add(heartbeatFresh)
			expect(0, false) // it beats no more
			expect(put, true)
			now = now.Add(heartbeatFresh - time.Second)
			expect(put, true)
			now = now.Add(time.Second)
			expect(put, false)
		})
	}
}

// The clock is put back after its pod has gone: a heartbeat is a later one all the same.
func TestJudgeComesBackEarlier(t *testing.T) {
	n := newTestNeighbour(t, false)
	now := neighbourTime
	n.now = func() time.Time { return now }
	n.judge(objects{"kubevirt": daemonPod("kubevirt", virtHandler)}, newFakeNode().object(), impatience{})
	n.judge(objects{}, newFakeNode().object(), impatience{})
	now = now.Add(-24 * time.Hour)
	if s, _ := n.judge(objects{}, beaten(virtHandler, 24*time.Hour), impatience{}); !s.Aside {
		t.Error(s)
	}
}

// What is run is ended, and run again, as it stands.
func TestRunUnlessAside(t *testing.T) {
	n := newTestNeighbour(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan string), make(chan struct{})
	go func() {
		n.RunUnlessAside(ctx, func(ctx context.Context) {
			events <- "runs"
			<-ctx.Done()
			events <- "ends"
		})
		close(ended)
	}()
	expect := func(want string) {
		t.Helper()
		if got := <-events; got != want {
			t.Fatalf("it %s, want: it %s", got, want)
		}
	}
	n.take(Standing{Known: true})
	expect("runs")
	n.take(Standing{Known: true, Reason: "its pod"}) // taken over: goes on
	n.take(Standing{Known: true, Aside: true, Reason: "its pod"})
	expect("ends")
	n.take(Standing{Known: true})
	expect("runs")
	cancel()
	expect("ends")
	<-ended
}

func TestStore(t *testing.T) {
	v := NewValue[objects](nil)
	s := store{v}
	at := func(uid, version string) *object {
		return &object{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(uid), ResourceVersion: version}}
	}
	expect := func(want string) {
		t.Helper()
		got := ""
		all, _ := v.Get()
		for _, o := range all {
			got += fmt.Sprint(o.UID, " ", o.ResourceVersion)
		}
		if got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(s.Add("nonsense"))
	expect("")
	do(s.Replace([]any{at("a", "9")}, ""))
	expect("a 9")
	do(s.Update(at("a", "10")))
	expect("a 10")
	do(s.Update(at("a", "9"))) // the watch is behind what a write answered
	do(s.Replace([]any{at("a", "2")}, ""))
	expect("a 10")
	do(s.Add(at("b", "11"))) // made anew under its name
	expect("b 11")
	do(s.Delete(at("a", "10")))
	expect("b 11")
	do(s.Delete(at("b", "12")))
	expect("")
}

func FuzzOwners(f *testing.F) {
	f.Add([]byte(`{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:annotations":{"f:b":{}}}}`))
	f.Add([]byte(`{"f:metadata":{"f:labels":[]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o := owners([]metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(string(raw))}})
		for field := range o.others {
			if field.kind != labelField && field.kind != annotationField {
				t.Fatal(field)
			}
		}
	})
}
