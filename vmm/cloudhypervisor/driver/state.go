package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/internal/untree"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// restoreTime is how long a VM that was taken away may take to come back. Its guest is paused
// meanwhile, and if its VMM hangs somebody must learn it.
func (m *machine) restoreTime() time.Duration {
	if m.link.Plan.Memory.Path == "" {
		return 10 * time.Minute // its RAM is its own, and all of it is read
	}
	return 2 * time.Minute
}

// tidyTime is how long a VMM that fills a folder as it is removed keeps others waiting.
const tidyTime = 10 * time.Second

// loadName is the folder, in the VMM's own, that an image's state is loaded from.
const loadName = "load"

// gone is a VM that was taken away for its disks' sake when it was saved.
type gone struct {
	snapshot folder
	config   chapi.VMConfig
}

// SaveState implements control.Machine. A disk in qcow2 that is written to is known
// to be whole only when cloud-hypervisor closes it: it keeps part of the image's
// tables in memory, and nothing else makes it write them. So such a VM is taken away
// when its snapshot is there, and made again from that by Regain or Continue, in the
// same process. If that fails the snapshot stays, and can be saved again.
func (m *machine) SaveState(ctx context.Context, f *os.File, sharedRAM bool) error {
	ram := m.link.Plan.Memory.Size
	if sharedRAM {
		ram = 0
	}
	if g := m.away(); g != nil {
		return g.snapshot.pack(ctx, f, ram)
	}
	info, err := m.api.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	if info.State == chapi.StateCreated {
		return errors.New("the guest has not been booted yet: let it run once, and save it then")
	}
	d := m.folder("save-" + strconv.FormatInt(time.Now().UnixNano(), 36))
	if err := d.make(); err != nil {
		return err
	}
	err = wrap(m.slow.Snapshot(ctx, path.Join(m.vm.Folder, d.name)))
	faultpoint.Reach("cloud-hypervisor.save.snapshot-made")
	if err == nil {
		err = d.pack(ctx, f, ram)
	}
	config := m.leaving.config(&info)
	if err != nil || !keepsTables(&config) {
		m.tidy(d)
		return err
	}
	// Before it is asked for: an answer that doesn't come leaves open whether it is
	// there, and then the snapshot is all there is.
	m.setAway(&gone{d, config})
	err = wrap(m.slow.Delete(ctx))
	faultpoint.Reach("cloud-hypervisor.save.taken-away")
	return err
}

// folder is one in the VMM's.
func (m *machine) folder(name string) folder {
	return folder{m.link.Folder, name, m.link.Plan.User}
}

// tidy removes a folder that is not needed any more. If that fails it goes with the
// VMM's own.
func (m *machine) tidy(d folder) {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	if err := untree.RemoveAll(ctx, d.root, d.name); err != nil {
		m.link.Log.Warn("failed to remove a snapshot of cloud-hypervisor's", "error", err)
	}
}

// keepsTables says whether the VMM has unwritten tables of one of its disks.
func keepsTables(c *chapi.VMConfig) bool {
	for _, d := range c.Disks {
		if d.Type != chapi.ImageRaw && !d.ReadOnly {
			return true
		}
	}
	return false
}

// away is set while the VM was taken away, or that was tried.
func (m *machine) away() *gone {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

func (m *machine) setAway(g *gone) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = g
}

// Regain implements control.Machine. Once begun it is not given up: without it there
// is no VM.
func (m *machine) Regain(ctx context.Context) error {
	g := m.away()
	if g == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.restoreTime())
	defer cancel()
	info, err := m.api.Info(ctx)
	var refused *chapi.Error
	switch {
	case errors.As(err, &refused): // there is none
		err = m.bringBack(ctx, g)
	case err == nil && info.State == chapi.StateCreated: // what is left of it, without its state
		if err = m.slow.Delete(ctx); err == nil {
			err = m.bringBack(ctx, g)
		}
	}
	if err != nil {
		return wrap(err)
	}
	faultpoint.Reach("cloud-hypervisor.save.brought-back")
	m.setAway(nil)
	m.tidy(g.snapshot)
	return nil
}

// bringBack restores it without asking for Landlock again: the process is confined
// already, and the kernel allows no more than 16 fences in each other (landlock(7)).
func (m *machine) bringBack(ctx context.Context, g *gone) error {
	config := g.config
	config.Landlock, config.LandlockRules = false, nil
	return m.restore(ctx, g.snapshot, &config)
}

// LoadState implements control.Machine. What the image says of the configuration is
// not believed: it is the plan's.
func (m *machine) LoadState(ctx context.Context, f *os.File, sharedRAM bool) error {
	ram := m.link.Plan.Memory.Size
	if sharedRAM {
		ram = 0
	}
	d, config := m.folder(loadName), m.vm.Restored()
	if err := d.make(); err != nil {
		return err
	}
	if err := d.unpack(ctx, f, ram); err != nil {
		return err
	}
	faultpoint.Reach("cloud-hypervisor.load.unpacked")
	if err := m.restore(ctx, d, &config); err != nil {
		return err
	}
	m.tidy(d)
	return nil
}

// restore makes the VM of a snapshot, with this configuration in the place of the
// snapshot's; it is paused then.
func (m *machine) restore(ctx context.Context, d folder, config *chapi.VMConfig) error {
	content, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := d.root.Remove(path.Join(d.name, configName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.write(configName, bytes.NewReader(content)); err != nil {
		return err
	}
	r := chapi.Restore{Folder: path.Join(m.vm.Folder, d.name), Mode: chapi.RestoreCopy}
	for _, t := range m.taps {
		r.Nets = append(r.Nets, chapi.RestoreNet{ID: t.id, Taps: t.files})
	}
	return wrap(m.explain(m.slow.Restore(ctx, r)))
}
