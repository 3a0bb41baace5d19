package nodeobject

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
)

// TestFights: somebody takes a label away again and again. The Node is written seldom,
// that is told once, and when the other ends it is as it should be, if need be after
// somebody has taken the annotation away.
func TestFights(t *testing.T) {
	t.Parallel()
	own, paused := label("node.vmlet.io/vmm"), annotation(contract.AnnotationPaused)
	takes := func(n *fakeNode) { n.set("other", own, "") }
	for name, c := range map[string]struct {
		each  time.Duration
		times int
		does  func(*fakeNode)
		told  []string
		most  int // writes
	}{
		"each second":        {time.Second, 100, takes, []string{"VmletPutsBack", "VmletPaused"}, 15},
		"each 7 seconds":     {7 * time.Second, 200, takes, []string{"VmletPutsBack", "VmletPaused"}, 70},
		"each minute":        {time.Minute, 110, takes, []string{"VmletPutsBack", "VmletPaused"}, 90},
		"each ten minutes":   {10 * time.Minute, 12, takes, []string{"VmletPutsBack"}, 12},
		"with another value": {time.Second, 100, func(n *fakeNode) { n.set("other", own, "theirs") }, []string{"VmletConflict"}, 2},
		"each second, and the annotation": {time.Second, 600, func(n *fakeNode) {
			n.set("other", own, "")
			n.set("other", paused, "")
		}, []string{"VmletPutsBack", "VmletPaused"}, 90},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live(t, "", func(t *testing.T, a *agent) {
				begin := time.Now()
				for range c.times {
					a.change(c.does)
					time.Sleep(c.each)
				}
				if n := a.writes(begin); n > c.most {
					t.Errorf("%d writes", n)
				}
				for _, reason := range c.told {
					if n := a.saysOf(reason); n == 0 || n > 1 && name != "each second, and the annotation" || n > 10 {
						t.Errorf("told %d times: %v", n, a.told)
					}
				}
				if pauses := a.publisher.Outcomes().Pauses; pauses > 0 != slices.Contains(c.told, "VmletPaused") {
					t.Errorf("it has given up %d times", pauses)
				}
				a.change(func(n *fakeNode) { n.set("kubectl", own, ""); n.set("kubectl", paused, "") })
				time.Sleep(10 * time.Minute)
				a.wants(t, base(nil))
			})
		})
	}
}

// TestFlapping: the facts change for half an hour. That is written seldom, and is nobody's
// fault: the last of them is on the Node in the end.
func TestFlapping(t *testing.T) {
	t.Parallel()
	live(t, "", func(t *testing.T, a *agent) {
		begin := time.Now()
		for i := range 200 {
			a.becomes(fmt.Sprint("vmm-", i))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(longRunEach)
		if n := a.writes(begin); n > 75 {
			t.Errorf("%d writes", n)
		}
		if a.publisher.Outcomes().Paused || a.saysOf("VmletPutsBack") > 0 {
			t.Errorf("told %v", a.told)
		}
		a.wants(t, base(map[string]string{"node.vmlet.io/vmm": "vmm-199"}))
	})
}

// TestTwoAgents: two agents of one Node, which the API server takes for one, and
// whose machines can something else. Both give up.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	live(t, "", func(t *testing.T, a *agent) {
		begin := time.Now()
		other := &agent{apiServer: a.apiServer, said: &loudness{}}
		end := other.run("")
		defer end()
		other.becomes("cloud-hypervisor")
		time.Sleep(3 * time.Hour)
		if n := a.writes(begin); n > 30 {
			t.Errorf("%d writes", n)
		}
		if n := a.saysOf("VmletPaused"); n != 1 && n != 2 {
			t.Errorf("told %v", a.told)
		}
	})
}

// TestStorm: 10,000 changes of the Node in a row, each of which is seen, or the
// next, and none is a reason to write; what is taken away among them is put back.
func TestStorm(t *testing.T) {
	t.Parallel()
	live(t, "", func(t *testing.T, a *agent) {
		begin := time.Now()
		const changes = 10_000
		for i := range changes {
			a.change(func(n *fakeNode) {
				n.set("somebody", annotation("example.org/turn"), fmt.Sprint(i))
				if i == changes/2 {
					n.set("kubectl", label("node.vmlet.io/vmm"), "")
				}
			})
		}
		time.Sleep(time.Minute)
		if n := a.writes(begin); n != 1 {
			t.Errorf("%d writes for one label", n)
		}
		a.wants(t, base(nil))
		if seen, _ := a.watch.node(); seen.Annotations["example.org/turn"] != fmt.Sprint(changes-1) {
			t.Errorf("it has seen %v", seen.Annotations)
		}
	})
}

// TestHugeNode: a Node with a megabyte of annotations that changes 50 times costs no
// memory once that is over.
func TestHugeNode(t *testing.T) {
	live(t, "", func(t *testing.T, a *agent) {
		a.change(func(n *fakeNode) {
			for i := range 16 {
				n.set("somebody", annotation(fmt.Sprintf("example.org/large-%d", i)), strings.Repeat("x", 64<<10))
			}
		})
		begin := time.Now()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range 50 {
			a.change(func(n *fakeNode) { n.set("somebody", annotation("example.org/turn"), fmt.Sprint(i)) })
			a.mu.Lock()
			a.history = a.history[max(0, len(a.history)-10):]
			a.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		runtime.GC()
		runtime.ReadMemStats(&after)
		const most = 64 << 20
		if after.HeapAlloc > before.HeapAlloc+most {
			t.Errorf("%d MiB are in use, %d were before", after.HeapAlloc>>20, before.HeapAlloc>>20)
		}
		if n := a.writes(begin); n != 0 {
			t.Errorf("%d writes", n)
		}
		a.wants(t, base(nil))
	})
}

// TestNodeIsMadeAnew: the Node is deleted, and later there is another of its name.
// Nothing is written in between, then it has its labels, and the Lease is its.
func TestNodeIsMadeAnew(t *testing.T) {
	t.Parallel()
	live(t, "", func(t *testing.T, a *agent) {
		for i, gap := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
			begin, uid := time.Now(), fmt.Sprint("again-", i)
			version := a.remove()
			time.Sleep(gap)
			if n := a.writes(begin); n > 0 {
				t.Errorf("%d writes to a Node that isn't there", n)
			}
			a.create(uid, version)
			time.Sleep(time.Minute)
			a.wants(t, base(nil))
			a.mu.Lock()
			if n := len(a.leases.lease.OwnerReferences); n != 1 || string(a.leases.lease.OwnerReferences[0].UID) != uid {
				t.Errorf("the Lease is %+v", a.leases.lease)
			}
			a.mu.Unlock()
			if n := a.writes(begin); n > 3 {
				t.Errorf("%d writes", n)
			}
		}
	})
}

// TestTokenExpires: the token is not accepted any more, and later the file has
// another: the agent goes on with that, without having been restarted.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	live(t, path, func(t *testing.T, a *agent) {
		for _, c := range []struct {
			token string
			gap   time.Duration // until the file has it
			after time.Duration // until the agent uses it
		}{{"second", 0, 5 * time.Second}, {"third", 10 * time.Second, 40 * time.Second}, {"fourth", 10 * time.Minute, 2 * time.Minute}} {
			begin := time.Now()
			a.stop()
			a.start()
			a.mu.Lock()
			a.token = c.token
			a.mu.Unlock()
			a.becomes(c.token)
			time.Sleep(c.gap)
			write(c.token)
			time.Sleep(c.after)
			a.wants(t, base(map[string]string{"node.vmlet.io/vmm": c.token}))
			if all, busiest, kinds := a.since(begin); busiest > 60 {
				t.Errorf("asked %d times, %d in a minute: %s", all, busiest, kinds)
			}
		}
		// A file that is gone, or empty, for a moment: what it had is good.
		for _, spoil := range []func() error{func() error { return os.Remove(path) }, func() error { return os.WriteFile(path, nil, 0o600) }} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			a.becomes("x")
			time.Sleep(5 * time.Minute)
			a.wants(t, base(map[string]string{"node.vmlet.io/vmm": "x"}))
			a.becomes("y")
			time.Sleep(time.Minute)
		}
	})
}
