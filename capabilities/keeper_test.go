package capabilities

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/test/suites"
	"golang.org/x/sys/unix"
)

// patience bounds every wait; nothing takes as long unless it is broken.
const patience = 30 * time.Second

func newKeeper(t *testing.T, m *machine) *Keeper {
	t.Helper()
	s := m.sources()
	s.CacheFile = "" // what it knows it has in memory
	return NewKeeper(s)
}

func (m *machine) document(k *Keeper) *capabilitiesv1.Capabilities {
	m.t.Helper()
	doc, err := k.Document(context.Background())
	m.must(err)
	return doc
}

// TestKeeperRemembers: dear parts are asked once, also without a file.
func TestKeeperRemembers(t *testing.T) {
	m := newMachine(t)
	k := newKeeper(t, m)
	first := m.document(k)
	if second := m.document(k); !Equal(first, second) {
		t.Error("the second document differs")
	}
	if m.asked() != [3]int{1, 1, 1} {
		t.Errorf("asked %v", m.asked())
	}
	if _, err := k.Refresh(context.Background()); err != nil || m.asked() != [3]int{2, 2, 2} {
		t.Errorf("after a refresh: asked %v (%v)", m.asked(), err)
	}
}

// TestChooseSeesChange: a device that appears is seen by the very next choice,
// with nobody watching.
func TestChooseSeesChange(t *testing.T) {
	m := newMachine(t)
	m.kvm.set(refused(unix.ENOENT))
	k := newKeeper(t, m)
	known, err := k.Hypervisors()
	m.must(err)
	choose := func(want string, tries int) {
		t.Helper()
		h, _, err := known.Choose(context.Background(), "auto", nil)
		m.must(err)
		if got, _ := m.kvm.counts(); h.Name() != want || got != tries {
			t.Errorf("%s was chosen after %d tries, not %s after %d", h.Name(), got, want, tries)
		}
	}
	choose("emulation", 1)
	choose("emulation", 1)
	m.kvm.set(hypervisor.Status{Level: hypervisor.Works})
	m.write("dev/kvm", "")
	choose("kvm", 2)
	choose("kvm", 2)
}

// TestPassingBelief: a verdict that may pass is believed for a moment only.
func TestPassingBelief(t *testing.T) {
	m := newMachine(t)
	m.kvm.set(refused(unix.EBUSY))
	k := newKeeper(t, m)
	m.document(k)
	if k.standing() == nil {
		t.Error("it is asked again at once")
	}
	k.mu.Lock()
	k.at = k.at.Add(-passingBelief)
	k.mu.Unlock()
	if k.standing() != nil {
		t.Error("it is believed for ever")
	}
	m.kvm.set(refused(unix.EACCES))
	m.document(k)
	k.mu.Lock()
	k.at = k.at.Add(-passingBelief)
	k.mu.Unlock()
	if k.standing() == nil {
		t.Error("what lasts isn't believed")
	}
}

// TestKeeperGivenUp: one caller that gives up costs the others nothing.
func TestKeeperGivenUp(t *testing.T) {
	m := newMachine(t)
	k := newKeeper(t, m)
	known, err := k.Hypervisors()
	m.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := k.Document(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the error %v", err)
	}
	if _, _, err := known.Choose(ctx, "kvm", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the error %v", err)
	}
	if state := m.document(k).GetHypervisors()[0].GetState(); state != capabilitiesv1.State_STATE_WORKS {
		t.Errorf("kvm is %q", state)
	}
}

// TestKeeperCrowd: many ask at once, and the machine is asked once.
func TestKeeperCrowd(t *testing.T) {
	m := newMachine(t)
	k := newKeeper(t, m)
	known, err := k.Hypervisors()
	m.must(err)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := known.Choose(context.Background(), "kvm", nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if m.asked() != [3]int{1, 1, 1} {
		t.Errorf("asked %v", m.asked())
	}
}

// TestSubscribe: each change arrives, what is no change doesn't, and who is
// slow gets the newest.
func TestSubscribe(t *testing.T) {
	m := newMachine(t)
	k := newKeeper(t, m)
	changes, stop := k.Subscribe()
	first := m.document(k)
	if got := <-changes; got != first {
		t.Error("the first document is another one")
	}
	m.document(k)
	m.kvm.set(hypervisor.Status{Level: hypervisor.Works, InstructionsPerSecond: 7})
	if _, err := k.Refresh(context.Background()); err != nil || len(changes) != 0 {
		t.Errorf("a change that is none arrived (%v)", err)
	}
	for _, errno := range []unix.Errno{unix.EACCES, unix.EPERM} {
		m.kvm.set(refused(errno))
		if _, err := k.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-changes; got.GetHypervisors()[0].GetErrno() != "EPERM" {
		t.Errorf("not the newest: %v", got.GetHypervisors()[0])
	}
	stop()
	m.kvm.set(hypervisor.Status{Level: hypervisor.Works})
	if _, err := k.Refresh(context.Background()); err != nil || len(changes) != 0 {
		t.Errorf("one came after the end (%v)", err)
	}
}

// watched is a keeper that watches a machine.
type watched struct {
	*Keeper
	t       *testing.T
	changes <-chan *capabilitiesv1.Capabilities
}

func watchMachine(t *testing.T, m *machine) *watched {
	t.Helper()
	k := newKeeper(t, m)
	changes, stop := k.Subscribe()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { k.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
		stop()
	})
	w := &watched{k, t, changes}
	w.next()
	return w
}

// next is the next document that says something else.
func (w *watched) next() *capabilitiesv1.Capabilities {
	w.t.Helper()
	select {
	case doc := <-w.changes:
		return doc
	case <-suites.After(w.t, patience):
		w.t.Fatal("nothing was noticed")
		return nil
	}
}

// until takes documents until one says so. One that is made while the machine
// changes may have a part of then and a part of now; another follows it.
func (w *watched) until(says func(*capabilitiesv1.Capabilities) bool) {
	w.t.Helper()
	for !says(w.next()) {
	}
}

// TestWatch: real files, a real inotify, and nobody asks.
func TestWatch(t *testing.T) {
	m := newMachine(t)
	m.kvm.set(refused(unix.ENOENT))
	w := watchMachine(t, m)

	m.kvm.set(hypervisor.Status{Level: hypervisor.Works})
	m.write("dev/kvm", "")
	w.until(func(doc *capabilitiesv1.Capabilities) bool {
		return doc.GetHypervisors()[0].GetState() == capabilitiesv1.State_STATE_WORKS
	})

	for version, file := range map[string]string{"11.0.0": "bin/qemu", "12.0.0": "lib/behind"} {
		m.qemu.mu.Lock()
		m.qemu.info.Version = version
		m.qemu.mu.Unlock()
		m.replace(file, "a newer program")
		w.until(func(doc *capabilitiesv1.Capabilities) bool { return doc.GetVmms()[0].GetVersion() == version })
	}

	// A folder that wasn't there, and a device in it.
	m.must(os.RemoveAll(m.path("dev/net")))
	m.write("dev/net/tun", "")
	w.until(func(doc *capabilitiesv1.Capabilities) bool {
		return doc.GetDevices()[2].GetState() == capabilitiesv1.State_STATE_UNUSABLE
	}) // a file is no device

	m.kvm.set(refused(unix.ENOENT))
	m.must(os.Remove(m.path("dev/kvm")))
	w.until(func(doc *capabilitiesv1.Capabilities) bool {
		return doc.GetHypervisors()[0].GetState() == capabilitiesv1.State_STATE_UNUSABLE
	})
}

// TestWatchBlind: where the kernel gives no inotify it is said, and the machine is
// looked at again all the same.
func TestWatchBlind(t *testing.T) {
	m := newMachine(t)
	var limit unix.Rlimit
	m.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	w := &watch{keeper: newKeeper(t, m), interval: time.Hour}
	m.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	w.arm()
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	m.must(err)
	if w.files.Changes() != nil || !w.told {
		t.Fatalf("watching %v, told %v", w.files.Changes() != nil, w.told)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if w.wait(ctx) {
		t.Error("a change was noticed")
	}
	w.interval = time.Nanosecond
	if !w.wait(t.Context()) {
		t.Error("it is not looked at again")
	}
	w.arm()
	defer w.files.Close()
	if w.files.Changes() == nil {
		t.Error("it isn't watched when it can be again")
	}
	if w.blind {
		t.Error("it is looked at at intervals though it is watched")
	}
}
