package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"google.golang.org/protobuf/proto"
)

// operation is something that is done to a VM while processes are killed.
type operation struct {
	name string
	// setup brings a VM to where it can be done.
	setup func(*walked)
	do    func(*walked) error
	// want is the VM's state afterwards; unspecified: there is none any more.
	want nodev1.State
	// steps that are tried with this operation where each is tried once.
	steps []string
	// driver has those of a VMM's own driver.
	driver map[string][]string
	// notWith is a VMM that can't do it with the tiny guest.
	notWith string
	// builtIn: a VMM behind the driver protocol can't do it.
	builtIn bool

	live  bool // the guest runs before it
	saves bool // an image comes of it, and the VM ends in that
	keeps bool // an image comes of it, and the VM goes on
	image bool // the guest comes from an image
	fresh bool // there is no such VM before it
	ends  bool // it ends the VM
	fails bool // it returns an error
}

func operations() []*operation {
	return []*operation{
		{
			name: "create", setup: func(*walked) {}, do: (*walked).doCreate, want: created, fresh: true,
			steps: []string{"agent.create.entered", "agent.create.kept"},
		}, {
			name: "start", setup: (*walked).created, do: (*walked).doStart, want: running,
			steps: []string{
				"agent.launch.chosen", "agent.launch.announced", "agent.launch.prepared", "agent.launch.folder-made", "agent.launch.leased",
				"agent.launch.shim-started", "agent.launch.acquired", "agent.launch.launched", "agent.launch.connected", "agent.launch.noted",
				"shim.run.ready", "shim.launch.begun", "shim.launch.prepared", "shim.launch.opened", "shim.launch.started",
				"shim.launch.connected", "shim.launch.continued",
			},
			driver: map[string][]string{"cloud-hypervisor": {"cloud-hypervisor.launch.created"}},
		}, {
			name: "failing start", setup: (*walked).withoutDisk, do: (*walked).doStart, want: running, fails: true,
			steps: []string{"agent.launch.taken-back", "shim.launch.undone"},
		}, {
			name: "save", setup: (*walked).running, do: (*walked).doSave, want: saved, live: true, saves: true,
			steps: []string{
				"agent.save.announced", "agent.save.prepared", "agent.save.committed",
				"shim.save.folder-made", "shim.save.stopped", "shim.save.state-written", "shim.save.memory-written", "shim.save.disks-written", "shim.save.prepared",
				"image.manifest.written", "image.manifest.named", "shim.commit.begun", "shim.commit.placed", "shim.commit.quit",
			},
			driver: map[string][]string{
				"qemu":             {"qemu.save.configured", "qemu.migration.begun", "qemu.save.moved"},
				"cloud-hypervisor": {"cloud-hypervisor.save.snapshot-made", "cloud-hypervisor.save.taken-away"},
			},
		}, {
			name: "save kept", setup: (*walked).running, do: (*walked).doSaveKept, want: running, live: true, keeps: true,
			steps:  []string{"shim.commit.resumed"},
			driver: map[string][]string{"cloud-hypervisor": {"cloud-hypervisor.save.brought-back"}},
		}, {
			name: "cancelled save", setup: (*walked).running, do: (*walked).doSaveCancelled, want: running, live: true, fails: true,
			steps: []string{"shim.save.resumed"},
		}, {
			name: "start of a saved VM", setup: (*walked).saved, do: (*walked).doStart, want: running, image: true,
			steps:  []string{"shim.launch.loaded"},
			driver: map[string][]string{"qemu": {"qemu.load.configured"}, "cloud-hypervisor": {"cloud-hypervisor.load.unpacked"}},
		}, {
			name: "restore", setup: (*walked).onlyImage, do: (*walked).doRestore, want: running, fresh: true, image: true,
			steps: []string{"agent.restore.entered"},
		}, {
			name: "lazy restore", setup: (*walked).onlyImage, do: (*walked).doRestoreLazily, want: running, fresh: true, image: true,
		}, {
			name: "stop", setup: (*walked).running, do: (*walked).doStop, want: stopped, live: true, ends: true,
			steps: []string{"agent.stop.announced", "agent.stop.over", "shim.stop.pressed", "shim.end.settled", "shim.end.undone", "shim.end.recorded"},
		}, {
			name: "kill", setup: (*walked).running, do: (*walked).doKill, want: stopped, live: true, ends: true,
			steps: []string{"agent.kill.begun", "agent.kill.over", "shim.kill.killed", "agent.end.heard", "agent.end.given-back", "agent.end.noted"},
		}, {
			name: "delete", setup: (*walked).created, do: (*walked).doDelete,
			steps: []string{"agent.delete.begun", "agent.delete.removed"},
		}, {
			name: "adoption", setup: (*walked).running, do: (*walked).doAdopt, want: running, live: true,
			steps: []string{"agent.adopt.loaded", "agent.adopt.dialled", "agent.adopt.connected", "agent.adopt.all"},
		}, {
			name: "adoption of what has ended", setup: (*walked).ended, do: (*walked).doAdopt, want: running,
			steps: []string{"agent.adopt.ended", "agent.adopt.classified"},
		}, {
			name: "renew", setup: (*walked).running, do: (*walked).doRenew, want: running, live: true, notWith: "cloud-hypervisor", builtIn: true,
			steps: slices.Concat([]string{
				"agent.renew.planned", "agent.renew.renewed", "agent.renew.noted",
			}, renewalSteps()),
			driver: map[string][]string{"qemu": {"qemu.receive.configured", "qemu.send.configured", "qemu.send.stopped"}},
		}, {
			name: "cancelled renewal", setup: (*walked).running, do: (*walked).doRenewCancelled, want: running, live: true, fails: true, notWith: "cloud-hypervisor", builtIn: true,
			steps: []string{"shim.renew.undone"},
		}, {
			name: "attach", setup: (*walked).running, do: (*walked).doAttach, want: running, live: true,
			steps:  []string{"agent.attach.planned", "agent.attach.attached", "shim.attach.opened", "shim.attach.attached"},
			driver: map[string][]string{"qemu": {"qemu.attach.step-done"}, "cloud-hypervisor": {"cloud-hypervisor.attach.added"}},
		}, {
			name: "detach", setup: (*walked).attached, do: (*walked).doDetach, want: running, live: true, notWith: "qemu",
			steps:  []string{"agent.detach.planned", "agent.detach.detached", "shim.detach.detached"},
			driver: map[string][]string{"cloud-hypervisor": {"cloud-hypervisor.detach.asked"}},
		}, {
			name: "resize", setup: (*walked).resizable, do: (*walked).doResize, want: running, live: true,
			steps: []string{"agent.resize.plugged", "agent.resize.aimed"},
		},
	}
}

// walked is the VM that a fault happens to.
type walked struct {
	*lane
	v     *vm
	spec  *specv1.VirtualMachineSpec
	dir   string // for its image
	disk  string
	more  string // a disk to be attached
	boots int    // of the guest, before the operation
	// returns are how often the guest was brought back to where an image has it, after
	// it may have gone on.
	returns int

	resets   sync.Mutex // held for one
	resetRun time.Time  // when the VM was started that was reset last
	resetUps int        // how often the guest had booted then
}

func (l *lane) walked(*operation) *walked {
	l.t.Helper()
	l.vms++
	w := &walked{lane: l, dir: l.image()}
	pattern := l.pattern(4)
	pattern.Words = 1
	w.spec = l.spec(fmt.Sprint("walked-", l.vms), guest.PVHOptions{Memory: pattern})
	w.disk, w.more = filepath.Join(l.folder, fmt.Sprint("disk", l.vms)), filepath.Join(l.folder, fmt.Sprint("more", l.vms))
	for _, path := range []string{w.disk, w.more} {
		l.must(errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<20)))
	}
	root := &specv1.Disk{Name: "root", Path: w.disk, Format: "raw"}
	if l.vmm == "cloud-hypervisor" { // a save takes such a VM away, and brings it back
		root.Format = "qcow2"
		qemuImg(l.t, "create", "-q", "-f", root.Format, w.disk, "1M")
	}
	w.spec.Disks = []*specv1.Disk{root}
	w.spec.Networks = l.tap(w.spec.GetName())
	w.v = &vm{node: l.node, name: w.spec.GetName(), lines: newJournal[string]()}
	return w
}

func (w *walked) created() { w.must(w.doCreate()) }

func (w *walked) withoutDisk() {
	w.created()
	w.must(os.Rename(w.disk, w.disk+".away"))
}

func (w *walked) running() {
	w.created()
	w.must(w.doStart())
	w.eventually(func() error { // its memory is filled by then, and looked at afterwards
		if len(counts(w.console())) == 0 {
			return errors.New("the guest does not count")
		}
		return nil
	})
	w.boots = w.ups()
}

func (w *walked) saved() {
	w.running()
	w.must(w.doSave())
}

// onlyImage leaves a VM's image and not the VM.
func (w *walked) onlyImage() {
	w.saved()
	w.must(w.doDelete())
	w.boots = 0
}

func (w *walked) attached() {
	w.running()
	w.must(w.doAttach())
}

// resizable has room for one more vCPU.
func (w *walked) resizable() {
	w.spec.Cpu = &specv1.CPU{MaxVcpus: 2}
	w.running()
}

// ended leaves a VM whose processes have ended while there was no agent.
func (w *walked) ended() {
	w.running()
	w.must(slay(w.cmd.Process.Pid))
	for _, pid := range w.victims(theShim) {
		w.must(slay(pid))
	}
}

func (w *walked) doCreate() error {
	_, err := w.api.CreateVM(w.ctx, &nodev1.CreateVMRequest{Spec: w.spec})
	return err
}

func (w *walked) doStart() error {
	_, err := last(w.api.StartVM(w.ctx, &nodev1.StartVMRequest{Name: w.v.name}))
	return err
}

func (w *walked) doSave() error { return w.saveTo(w.ctx, false) }

func (w *walked) doSaveKept() error { return w.saveTo(w.ctx, true) }

func (w *walked) saveTo(ctx context.Context, keep bool) error {
	_, err := last(w.api.SaveVM(ctx, &nodev1.SaveVMRequest{Name: w.v.name, Directory: w.dir, KeepRunning: keep}))
	return err
}

// doSaveCancelled has the caller go away in the middle of it.
func (w *walked) doSaveCancelled() error {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.faults.at("shim.save.state-written", func(int) { cancel() })
	return w.saveTo(ctx, false)
}

func (w *walked) doRenew() error { return w.renewWith(w.ctx) }

func (w *walked) renewWith(ctx context.Context) error {
	_, err := w.api.RenewVM(ctx, &nodev1.RenewVMRequest{Name: w.v.name})
	return err
}

// doRenewCancelled has the caller go away in the middle of it.
func (w *walked) doRenewCancelled() error {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.faults.at("shim.renew.started", func(int) { cancel() })
	return w.renewWith(ctx)
}

func (w *walked) doRestore() error {
	return w.restore(&nodev1.RestoreVMRequest{Directory: w.dir, Name: w.v.name})
}

func (w *walked) doRestoreLazily() error {
	return w.restore(&nodev1.RestoreVMRequest{Directory: w.dir, Name: w.v.name, Lazy: w.lazy()})
}

func (w *walked) doStop() error {
	_, err := w.api.StopVM(w.ctx, &nodev1.StopVMRequest{Name: w.v.name, GracePeriodMs: proto.Int64(patience.Milliseconds())})
	return err
}

func (w *walked) doKill() error {
	_, err := w.api.KillVM(w.ctx, &nodev1.KillVMRequest{Name: w.v.name})
	return err
}

func (w *walked) doDelete() error {
	_, err := w.api.DeleteVM(w.ctx, &nodev1.DeleteVMRequest{Name: w.v.name})
	return err
}

// doAdopt puts another agent in the place of the one that is there.
func (w *walked) doAdopt() error {
	err := slay(w.cmd.Process.Pid)
	<-w.node.ended
	w.conn.Close()
	w.conn = nil
	return errors.Join(err, w.tryStart())
}

func (w *walked) doAttach() error {
	_, err := w.v.attachDisk(&specv1.Disk{Name: "more", Path: w.more, Format: "raw"})
	return err
}

func (w *walked) doDetach() error { return w.v.detach("more") }

// doResize gives the guest a vCPU, and its balloon the aim that it has.
func (w *walked) doResize() error {
	_, err := w.v.resize(2, w.spec.GetMemory().GetSize())
	return err
}
