package chapi_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

func TestLife(t *testing.T) { withEach(t, life) }

func life(t *testing.T, make maker) {
	r := make(t, chtest.Knobs{Tick: 1})
	c := r.client
	if vmm, err := c.Ping(testContext(t)); err != nil || vmm.Version != "53.0.0" || vmm.PID != int64(r.pid) || !slices.Contains(vmm.Features, "kvm") {
		t.Errorf("%+v, %v", vmm, err)
	}
	if _, err := c.Info(testContext(t)); !errors.Is(err, chapi.ErrNotCreated) {
		t.Errorf("info before create: %v", err)
	}
	if err := c.Boot(testContext(t)); !errors.Is(err, chapi.ErrNotCreated) {
		t.Errorf("boot before create: %v", err)
	}
	r.must(r.create)
	if s := r.state(); s != chapi.StateCreated {
		t.Error(s)
	}
	r.must(c.Boot)
	r.until(chapi.EventBooted)
	r.must(c.Pause)
	r.until(chapi.EventPaused)
	if s := r.state(); s != chapi.StatePaused {
		t.Error(s)
	}
	var refused *chapi.Error
	if err := c.Pause(testContext(t)); !errors.As(err, &refused) || refused.Status != 500 || len(refused.Causes) < 2 {
		t.Errorf("a second pause: %v", err)
	}
	r.must(c.Resume)
	r.until(chapi.EventResumed)
	if !r.real {
		r.must(c.NMI) // the guest has no handler, and would start anew
	}
	r.must(c.Reboot)
	r.until(chapi.EventRebooted)
	if s := r.state(); s != chapi.StateRunning {
		t.Error(s)
	}
	r.must(c.Shutdown)
	r.until(chapi.EventShutdown)
	if s := r.state(); s != chapi.StateCreated {
		t.Error(s)
	}
	r.must(c.Boot, c.Delete, c.Delete)
	r.until(chapi.EventDeleted)
	r.must(c.ShutdownVMM)
	r.gone()
	if err := c.Boot(testContext(t)); !errors.Is(err, chapi.ErrDisconnected) {
		t.Errorf("after the end: %v", err)
	}
}

func TestDevices(t *testing.T) { withEach(t, devices) }

func devices(t *testing.T, make maker) {
	r := make(t, chtest.Knobs{AnyTap: true, Tick: 1})
	c := r.client
	r.must(r.create)
	taps := r.taps(1)
	before, err := c.AddNet(testContext(t), chapi.Net{PCI: chapi.PCI{ID: "net0"}}, taps...)
	if err != nil || before.ID != "" {
		t.Fatalf("before boot: %+v, %v", before, err)
	}
	r.must(c.Boot)
	added, err := c.AddDisk(testContext(t), chapi.Disk{PCI: chapi.PCI{ID: "disk1"}, Path: r.path("disk2"), Type: chapi.ImageRaw})
	if err != nil || added.ID != "disk1" || !strings.HasPrefix(added.Address, "0000:00:") {
		t.Fatalf("%+v, %v", added, err)
	}
	counters, err := c.Counters(testContext(t))
	if err != nil || counters["disk0"]["read_latency_min"] != chapi.Unmeasured || len(counters["net0"]) == 0 {
		t.Errorf("%v, %v", counters, err)
	}
	info, err := c.Info(testContext(t))
	if err != nil || info.Address("disk1") != added.Address || len(info.Config.Disks) != 2 || info.Config.Nets[0].MAC == "" || info.MemoryActual != ramSize {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := c.AddVsock(testContext(t), chapi.Vsock{PCI: chapi.PCI{ID: "vsock0"}, CID: 3, Socket: r.path("vsock")}); err != nil {
		t.Error(err)
	}
	r.must(func(ctx context.Context) error { return c.RemoveDevice(ctx, "disk1") })
	r.let("disk1")
	if err := c.RemoveDevice(testContext(t), "disk9"); err == nil {
		t.Error("a device that isn't there was removed")
	}
}

func TestResize(t *testing.T) { withEach(t, resize) }

func resize(t *testing.T, make maker) {
	r := make(t, chtest.Knobs{})
	c := r.client
	// It lets go of nothing while it is paused.
	r.must(r.create, c.Boot, c.Pause,
		func(ctx context.Context) error {
			return c.Resize(ctx, chapi.Resize{VCPUs: pointer[uint32](3), Balloon: pointer[uint64](1 << 20)})
		},
		func(ctx context.Context) error { return c.Resize(ctx, chapi.Resize{VCPUs: pointer[uint32](1)}) })
	r.until(chapi.EventResized)
	if err := c.Resize(testContext(t), chapi.Resize{VCPUs: pointer[uint32](2)}); !errors.Is(err, chapi.ErrBusy) {
		t.Errorf("while a vCPU leaves: %v", err)
	}
	if info, err := c.Info(testContext(t)); err != nil || !r.real && info.MemoryActual != ramSize-1<<20 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := c.Resize(testContext(t), chapi.Resize{RAM: pointer[uint64](8 << 20)}); err == nil {
		t.Error("memory in zones was resized as a whole")
	}
	if err := c.ResizeZone(testContext(t), "ram0", 2*ramSize); err == nil {
		t.Error("a zone without room was resized")
	}
}

// TestRestoreVM saves a VM with its RAM in a linked file and two kinds of
// networks, and restores it in a second VMM.
func TestRestoreVM(t *testing.T) { withEach(t, restoreVM) }

func restoreVM(t *testing.T, make maker) {
	r := make(t, chtest.Knobs{AnyTap: true})
	c := r.client
	folder := t.TempDir()
	snapshot := func(ctx context.Context) error { return c.Snapshot(ctx, folder) }
	r.must(r.create, func(ctx context.Context) error {
		_, err := c.AddNet(ctx, chapi.Net{PCI: chapi.PCI{ID: "net0"}}, r.taps(1)...)
		return err
	}, c.Boot)
	if err := snapshot(testContext(t)); err == nil {
		t.Error("a running VM was written down")
	}
	r.must(c.Pause)
	if err := snapshot(testContext(t)); r.real && err != nil && strings.Contains(err.Error(), "GetNestedState") {
		t.Skipf("this machine's KVM has not what saving takes: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := snapshot(testContext(t)); err == nil {
		t.Error("a second snapshot went into the folder")
	}
	if _, err := os.Stat(filepath.Join(folder, "memory-ranges")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("RAM in a linked file was written: %v", err)
	}
	if err := c.Restore(testContext(t), chapi.Restore{Folder: folder, Nets: []chapi.RestoreNet{{ID: "net0", Taps: r.taps(1)}}}); err == nil {
		t.Error("restored over a VM")
	}
	r.must(c.Delete)

	second := make(t, chtest.Knobs{AnyTap: true})
	for name, nets := range map[string][]chapi.RestoreNet{
		"none": nil, "too many": {{ID: "net0", Taps: r.taps(2)}}, "another": {{ID: "net1", Taps: r.taps(1)}},
	} {
		var refused *chapi.Error
		if err := second.client.Restore(testContext(t), chapi.Restore{Folder: folder, Nets: nets}); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mode := chapi.RestoreOnDemand
	if r.real {
		mode = chapi.RestoreCopy // the other takes a right that a test may not have
	}
	second.must(func(ctx context.Context) error {
		return second.client.Restore(ctx, chapi.Restore{
			Folder: folder, Mode: mode, Resume: true,
			Nets: []chapi.RestoreNet{{ID: "net0", Taps: r.taps(1)}},
		})
	})
	second.until(chapi.EventRestored)
	if s := second.state(); s != chapi.StateRunning {
		t.Error(s)
	}
}

// TestStandInTrouble: slow, dying, full of noise, and talking nonsense.
func TestStandInTrouble(t *testing.T) {
	t.Run("slow", func(t *testing.T) {
		r := newRig(t, chtest.Knobs{Slow: map[string]int{"vm.boot": 100}})
		r.must(r.create)
		ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
		defer cancel()
		if err := r.client.Boot(ctx); !errors.Is(err, chapi.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if s := r.state(); s != chapi.StateRunning { // carried out, and nobody was told
			t.Error(s)
		}
	})
	t.Run("dies", func(t *testing.T) {
		for _, done := range []bool{false, true} {
			r := newRig(t, chtest.Knobs{Die: map[string]chtest.Death{"vm.boot": {Code: 1, Done: done}}})
			r.must(r.create)
			if err := r.client.Boot(testContext(t)); !errors.Is(err, chapi.ErrDisconnected) || !errors.Is(err, chapi.ErrOutcomeUnknown) {
				t.Error(err)
			}
			if err := r.client.Boot(testContext(t)); !errors.Is(err, chapi.ErrDisconnected) || !errors.Is(err, chapi.ErrNotSent) {
				t.Error(err)
			}
		}
	})
	t.Run("noise", func(t *testing.T) {
		r := newRig(t, chtest.Knobs{Flood: 100})
		r.must(r.create, r.client.Boot)
		r.until(chapi.EventBooted)
	})
	t.Run("nonsense", func(t *testing.T) {
		for want, answer := range map[error]chtest.Answer{
			chapi.ErrTooLong:  {Body: `{"a":1}`, Size: 8 << 20},
			chapi.ErrProtocol: {Body: "SSH-2.0-x\r\n", Raw: true},
		} {
			r := newRig(t, chtest.Knobs{Answer: map[string]chtest.Answer{"vm.info": answer}})
			if _, err := r.client.Info(testContext(t)); !errors.Is(err, want) {
				t.Errorf("%+.40v: %v", answer, err)
			}
		}
	})
	t.Run("refuses", func(t *testing.T) {
		r := newRig(t, chtest.Knobs{Refuse: map[string][]string{"vm.pause": {"a", "b"}}})
		var refused *chapi.Error
		if err := r.client.Pause(testContext(t)); !errors.As(err, &refused) || !slices.Equal(refused.Causes, []string{"a", "b"}) {
			t.Error(err)
		}
	})
}

// TestTakesAll: each member that the client has a field for is known to the
// stand-in, which was written by the VMM's own definition and drops what it doesn't
// know; and none of what it answers with is mistaken.
func TestTakesAll(t *testing.T) { withEach(t, takesAll) }

func takesAll(t *testing.T, make maker) {
	r := make(t, chtest.Knobs{})
	config := fullConfig()
	config.Serial = &chapi.Console{Mode: chapi.ConsoleNull}
	config.Console = &chapi.Console{Mode: chapi.ConsoleOff, PCI: chapi.PCI{IOMMU: true}}
	config.Landlock = false
	r.must(func(ctx context.Context) error { return r.client.Create(ctx, config) })
	info, err := r.client.Info(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	compareMembers(t, "config", config, info.Config)
}
