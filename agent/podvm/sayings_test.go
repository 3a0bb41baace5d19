package podvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/semaphore"
)

// echo takes any words for a VMM's.
type echo struct {
	vmm.Teller
	said string
}

func (echo) Told(said json.RawMessage, _ *semaphore.Weighted) (vmm.VMM, error) {
	if string(said) == "bad" {
		return nil, errors.New("no")
	}
	return echo{said: string(said)}, nil
}

// TestPodsShareSayings: pods of one image share what its VMMs say, all images have a bound,
// and what no pod has any more is forgotten.
func TestPodsShareSayings(t *testing.T) {
	var s sayings
	first, err := s.take(echo{}, "qemu", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.take(echo{}, "qemu", []byte("{}")); again != first || err != nil {
		t.Errorf("the same words are not shared: %v", err)
	}
	if other, err := s.take(echo{}, "other", []byte("{}")); other == first || err != nil {
		t.Errorf("another VMM's are: %v", err)
	}
	if _, err := s.take(echo{}, "qemu", []byte("bad")); err == nil {
		t.Error("what can't be read is taken")
	}
	var pods []*sharedVMM
	large := func(i int) []byte { return fmt.Appendf(nil, "%d%s", i, strings.Repeat("[", maxSayingValues)) }
	for err == nil && len(pods) < 1<<10 {
		var v *sharedVMM
		v, err = s.take(echo{}, "qemu", large(len(pods)))
		pods = append(pods, v)
	}
	if !errors.Is(err, errNotYet) || len(pods) < 2 {
		t.Errorf("after %d images: %v", len(pods), err)
	}
	runtime.KeepAlive(pods)
	pods = nil
	if _, err := s.take(echo{}, "qemu", large(1<<20)); err != nil {
		t.Errorf("when those pods are gone: %v", err)
	}
	runtime.KeepAlive(first)
}

// TestPodReconnects: a connection that is lost is made again as the first was, which finds
// out who listens; another than the pod's shim is not spoken to.
func TestPodReconnects(t *testing.T) {
	for _, other := range []bool{false, true} {
		w := newWorld(t)
		a, n := w.start(), newFakeNode(w)
		n.servePod(t, a)
		n.container()
		vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
		m, _ := a.Get(t.Context(), podVM)
		if other {
			n.set(func() { n.peer.PID++ })
		}
		conn, err := m.Placement().Dial(t.Context())
		if (err != nil) != other {
			t.Errorf("another listens: %t; error %v", other, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
