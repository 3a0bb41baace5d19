package podvm

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/vmm/described"
	"github.com/vmlet/vmlet/vmm/driverkit"
)

// TestSurvey: a pod of a stack's image is asked what its VMMs can do, and runs no VM. What it said is forgotten
// with it. Pods of other namespaces say nothing of the node.
func TestSurvey(t *testing.T) {
	drive := func(_ string, conn net.Conn) error {
		go func() {
			_ = driverkit.Serve(context.Background(), conn.(*net.UnixConn), driverkit.Stack{Version: "strange", VMM: strange{&vmtest.VMM{}}})
		}()
		return nil
	}
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	p := n.runner(a)
	var mu sync.Mutex
	var said []*described.Report
	p.stack = stack{namespace: "default", report: func(r *described.Report) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, r)
	}}
	last := func() (*described.Report, int) {
		mu.Lock()
		defer mu.Unlock()
		if len(said) == 0 {
			return nil, 0
		}
		return said[len(said)-1], len(said)
	}
	unmount := n.serveWith(t, a, p)
	proc := n.container(func(p *vmtest.Pod) {
		p.Described.VMMs, p.Described.Drivers, p.Driver = json.RawMessage(`[{"name":"qemu","error":"no such file"}]`), []string{"strange"}, drive
		p.Described.Stack, p.Described.Specification = "own", nil
	})
	vmtest.Eventually(t, "the image is asked", func() bool { _, n := last(); return n > 0 })
	r, _ := last()
	if r.Profile != "own" || len(r.VMMs) != 2 {
		t.Fatalf("the report is %+v, want two VMMs of profile own", r)
	}
	if v := r.VMMs[0]; v.VMM.ID != "strange" || v.VMM.Version != "9" || !v.Driver || !v.Works() || len(v.VMM.Machines) != 1 {
		t.Errorf("the driver's VMM is %+v", v)
	}
	if v := r.VMMs[1]; v.VMM.ID != "qemu" || v.Works() || !strings.Contains(v.Why(), "no such file") {
		t.Errorf("the missing VMM is %+v", v)
	}
	if !proc.Alive() || len(a.All()) != 0 {
		t.Errorf("the pod is alive: %v; VMs: %d, want none", proc.Alive(), len(a.All()))
	}
	unmount()
	if r, _ := last(); r != nil {
		t.Errorf("after the pod's end the node says %+v", r)
	}
}

// TestStrangersSayNothingOfTheNode: a user's pod that says that it is a stack's is refused.
func TestStrangersSayNothingOfTheNode(t *testing.T) {
	w := newWorld(t)
	a, n := w.start(), newFakeNode(w)
	p := n.runner(a)
	p.stack = stack{namespace: "vmlet", report: func(r *described.Report) {
		if r != nil {
			t.Errorf("it was believed: %+v", r)
		}
	}}
	n.serveWith(t, a, p)
	proc := n.container(func(p *vmtest.Pod) { p.Described.Stack = "own" })
	wantText(t, n.refusal(t, proc), "namespace vmlet")
}
