package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// plugged is a rig whose VM runs, with a file for one more disk.
func plugged(t *testing.T, o guest.PVHOptions) (*rig, *machine) {
	t.Helper()
	r := newRig(t)
	kernel, err := guest.PVH(o)
	r.check(err)
	r.check(os.WriteFile(r.path("kernel"), kernel, 0o600))
	r.check(os.WriteFile(r.path("more"), make([]byte, 4096), 0o600))
	r.link.PID = os.Getpid() // the stand-in's
	m := r.connect()
	r.check(m.Continue(r.ctx))
	return r, m
}

// attachment of the file with that name, opened where it is now, as disk1.
func (r *rig) attachment(name string) control.Attachment {
	r.t.Helper()
	f, err := os.OpenFile(r.path(name), os.O_RDWR, 0)
	r.check(err)
	r.t.Cleanup(func() { f.Close() })
	return control.Attachment{Files: []*os.File{f}, Instructions: r.json(wire.Attach{Disk: &chapi.Disk{
		PCI: chapi.PCI{ID: "disk1", Slot: new(uint8(23))}, Path: r.path(name), Direct: true, Type: chapi.ImageRaw,
	}})}
}

func (r *rig) json(v any) json.RawMessage {
	text, err := json.Marshal(v)
	r.check(err)
	return text
}

// config is the VM's, as the VMM has it.
func (r *rig) config(m *machine) chapi.Info {
	r.t.Helper()
	info, err := m.api.Info(r.ctx)
	r.check(err)
	return info
}

func disk1() json.RawMessage { return json.RawMessage(`{"device":"disk1"}`) }

func TestPlug(t *testing.T) {
	r, m := plugged(t, guest.PVHOptions{})
	a := r.attachment("more")
	a.Buffered = []int{0}
	for range 3 { // in the same place
		r.check(m.Attach(r.ctx, a))
		info := r.config(m)
		if info.Address("disk1") != "0000:00:17.0" || len(info.Config.Disks) != 2 || info.Config.Disks[1].Direct {
			t.Errorf("at %q: %+v", info.Address("disk1"), info.Config.Disks)
		}
		if err := m.Attach(r.ctx, a); err == nil || len(r.config(m).Config.Disks) != 2 {
			t.Errorf("attached twice: %v", err)
		}
		r.check(m.Detach(r.ctx, disk1()))
		if info := r.config(m); present(&info, "disk1") || len(m.leaving.disks) > 0 {
			t.Errorf("it is still there: %+v", info.Config.Disks)
		}
		r.check(m.Detach(r.ctx, disk1())) // it is gone
		r.check(m.AwaitGone(r.ctx, disk1()))
	}
}

// TestPlugNet keeps the tap for as long as the interface, and gives it to a VM that
// comes back.
func TestPlugNet(t *testing.T) {
	for _, queues := range []int{2, 4} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) { plugNet(t, queues) })
	}
}

func plugNet(t *testing.T, queues int) {
	r, m := plugged(t, guest.PVHOptions{})
	r.turn(chtest.Knobs{AnyTap: true})
	null, err := os.Open(os.DevNull)
	r.check(err)
	r.check(m.Attach(r.ctx, control.Attachment{Files: []*os.File{null, null, null}, Instructions: r.json(wire.Attach{
		Net: &wire.AddNet{Net: chapi.Net{PCI: chapi.PCI{ID: "net3"}, NumQueues: queues}, Tap: 1},
	})}))
	null.Close()
	_, err = m.Stop(r.ctx)
	r.check(err)
	r.check(m.SaveState(r.ctx, r.file(), true))
	r.runs(m)
	if info := r.config(m); !present(&info, "net3") || len(m.taps) != 1 {
		t.Errorf("it came back with %+v", info.Config.Nets)
	}
	kept := m.taps[0].files
	if len(kept) != queues/2 {
		t.Errorf("%d files are kept, want %d", len(kept), queues/2)
	}
	r.check(m.Detach(r.ctx, json.RawMessage(`{"device":"net3"}`)))
	for _, file := range kept {
		if _, err := file.Stat(); len(m.taps) != 0 || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%d taps are left (%v)", len(m.taps), err)
		}
	}
}

// TestReplaced puts another file in the place of what was checked.
func TestReplaced(t *testing.T) {
	r, m := plugged(t, guest.PVHOptions{})
	a := r.attachment("more")
	r.check(os.WriteFile(r.path("other"), make([]byte, 4096), 0o600))
	r.check(os.Rename(r.path("other"), r.path("more")))
	if err := m.Attach(r.ctx, a); err == nil || !strings.Contains(err.Error(), "replaced meanwhile") {
		t.Error(err)
	}
	if info := r.config(m); present(&info, "disk1") {
		t.Error("it stays")
	}
	r.check(m.Attach(r.ctx, r.attachment("more")))
}

// TestGuestKeeps has a device that the guest lets go at its reset alone, with a save in
// between.
func TestGuestKeeps(t *testing.T) {
	r, m := plugged(t, guest.PVHOptions{KeepDevices: true})
	r.check(m.Attach(r.ctx, r.attachment("more")))
	for range 2 {
		short, cancel := context.WithTimeout(r.ctx, 500*time.Millisecond)
		defer cancel()
		if err := m.Detach(short, disk1()); !errors.Is(err, control.ErrGuestKeeps) {
			t.Fatal(err)
		}
	}
	late := make(chan error, 1)
	go func() { late <- m.AwaitGone(r.ctx, disk1()) }()
	_, err := m.Stop(r.ctx)
	r.check(err)
	r.check(m.SaveState(r.ctx, r.file(), true)) // which takes it away
	r.runs(m)
	if info := r.config(m); !configured(&info.Config, "disk1") {
		t.Fatal("the VM came back without it")
	}
	select {
	case err := <-late:
		t.Fatal("it is said to be gone:", err)
	default:
	}
	short, cancel := context.WithTimeout(r.ctx, 500*time.Millisecond)
	defer cancel()
	if err := m.Detach(short, disk1()); !errors.Is(err, control.ErrGuestKeeps) {
		t.Fatal(err)
	}
	r.check(m.api.Reboot(r.ctx))
	r.check(<-late)
	r.check(m.Detach(r.ctx, disk1()))
}

// TestAttachFails leaves nothing, whichever call fails, and however.
func TestAttachFails(t *testing.T) {
	for name, c := range map[string]struct {
		knobs chtest.Knobs
		gone  bool
	}{
		"refused":         {knobs: chtest.Knobs{Refuse: map[string][]string{"vm.add-disk": {"no"}}}},
		"nonsense":        {knobs: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.add-disk": {Raw: true, Body: "?\n"}}}},
		"not carried out": {knobs: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.add-disk": {Body: `{"id":"disk1","bdf":"0000:00:17.0"}`}}}},
		"info refused":    {knobs: chtest.Knobs{Refuse: map[string][]string{"vm.info": {"no"}}}},
		"dies":            {knobs: chtest.Knobs{Die: map[string]chtest.Death{"vm.add-disk": {}}}, gone: true},
		"dies after":      {knobs: chtest.Knobs{Die: map[string]chtest.Death{"vm.add-disk": {Done: true}}}, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, m := plugged(t, guest.PVHOptions{})
			r.turn(c.knobs)
			err := m.Attach(r.ctx, r.attachment("more"))
			if err == nil || errors.Is(err, control.ErrMonitorClosed) != c.gone {
				t.Error(err)
			}
			if c.gone {
				if err := m.AwaitGone(r.ctx, disk1()); !errors.Is(err, control.ErrMonitorClosed) {
					t.Error(err)
				}
				return
			}
			r.turn(chtest.Knobs{})
			if info := r.config(m); present(&info, "disk1") {
				t.Error("it is there")
			}
		})
	}
}

// TestAttachSeenThrough: a caller that goes away doesn't leave half a device.
func TestAttachSeenThrough(t *testing.T) {
	r, m := plugged(t, guest.PVHOptions{})
	r.turn(chtest.Knobs{Slow: map[string]int{"vm.add-disk": 800}})
	ctx, cancel := context.WithTimeout(r.ctx, 400*time.Millisecond)
	defer cancel()
	r.check(m.Attach(ctx, r.attachment("more")))
	if info := r.config(m); !present(&info, "disk1") {
		t.Error("it is not there")
	}
	if err := m.Attach(ctx, r.attachment("more")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestFenced says what to do about Landlock.
func TestFenced(t *testing.T) {
	r := newRig(t)
	r.vm.Config.Landlock = true
	r.check(os.WriteFile(r.path("more"), make([]byte, 4096), 0o600))
	r.vm.Config.LandlockRules = []chapi.LandlockRule{{Path: r.path("vmm"), Access: "rw"}}
	r.link.PID = os.Getpid()
	m := r.connect()
	r.check(m.Continue(r.ctx))
	if err := m.Attach(r.ctx, r.attachment("more")); !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "hotplugFolders") {
		t.Error(err)
	}
}

// TestNotBooted: the VMM would open the disk when nobody looks.
func TestNotBooted(t *testing.T) {
	r := newRig(t)
	r.check(os.WriteFile(r.path("more"), make([]byte, 4096), 0o600))
	m := r.connect()
	if err := m.Attach(r.ctx, r.attachment("more")); err == nil || !strings.Contains(err.Error(), "not been booted") {
		t.Error(err)
	}
	r.check(m.Continue(r.ctx))
}

func TestInstructions(t *testing.T) {
	r, m := plugged(t, guest.PVHOptions{})
	for _, text := range []string{"", "[]", "{}", `{"disk":{}}`, `{"net":{"tap":1}}`, `{"net":{"net":{"num_queues":4}}}`, `{"net":{"tap":-1}}`, `{"disk":{},"net":{}}`} {
		if err := m.Attach(r.ctx, control.Attachment{Instructions: json.RawMessage(text)}); !errors.Is(err, errInstructions) {
			t.Errorf("attach %q: %v", text, err)
		}
	}
	for _, text := range []string{"", "{}", `{"device":7}`} {
		if err := m.Detach(r.ctx, json.RawMessage(text)); !errors.Is(err, errInstructions) {
			t.Errorf("detach %q: %v", text, err)
		}
		if err := m.AwaitGone(r.ctx, json.RawMessage(text)); !errors.Is(err, errInstructions) {
			t.Errorf("await %q: %v", text, err)
		}
	}
}
