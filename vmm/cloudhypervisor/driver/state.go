package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// restoreTime is how long a VM that was taken away may take to come back; with RAM
// of its own all of that is read.
const restoreTime = 10 * time.Minute

// loadName is the folder, in the VMM's own, that an image's state is loaded from.
const loadName = "load"

// SaveState implements server.Machine. A disk in qcow2 that is written to is known
// to be whole only when cloud-hypervisor closes it: it keeps part of the image's
// tables in memory, and nothing else makes it write them. So such a VM is taken away
// when its snapshot is there, and made anew from that by Regain or Continue, in the
// same process.
func (m *machine) SaveState(ctx context.Context, f *os.File, sharedRAM bool) error {
	if m.away() {
		return errors.New("the VM was saved before, and has not been let go on")
	}
	name := "save-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	config, err := m.takeSnapshot(ctx, name, f, sharedRAM)
	keep := false
	if err == nil && keepsTables(config) {
		if err = wrap(m.api.Delete(ctx)); err == nil {
			keep = true
			m.setAway(name)
		}
	}
	if !keep {
		err = errors.Join(err, m.link.Folder.RemoveAll(name))
	}
	return err
}

// takeSnapshot writes a snapshot to a folder, and packs it into f. It returns the
// VM's configuration.
func (m *machine) takeSnapshot(ctx context.Context, name string, f *os.File, sharedRAM bool) (*chapi.VMConfig, error) {
	info, err := m.api.Info(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	if info.State == chapi.StateCreated {
		return nil, errors.New("the guest has not been booted yet: let it run once, and save it then")
	}
	if err := m.makeFolder(name); err != nil {
		return nil, err
	}
	if err := m.api.Snapshot(ctx, path.Join(m.vm.Folder, name)); err != nil {
		return nil, wrap(err)
	}
	ram := m.link.Plan.Memory.Size
	if sharedRAM {
		ram = 0
	}
	return pack(f, m.link.Folder, name, ram)
}

// makeFolder makes a folder in the VMM's, which is its user's too.
func (m *machine) makeFolder(name string) error {
	if err := m.link.Folder.Mkdir(name, 0o700); err != nil {
		return err
	}
	return m.give(name)
}

func (m *machine) give(name string) error {
	if u := m.link.Plan.User; u != nil {
		return m.link.Folder.Lchown(name, int(u.UID), int(u.GID))
	}
	return nil
}

// keepsTables says whether a VM has a disk of which the VMM has unwritten tables.
func keepsTables(c *chapi.VMConfig) bool {
	for _, d := range c.Disks {
		if d.Type != chapi.ImageRaw && !d.ReadOnly {
			return true
		}
	}
	return false
}

func (m *machine) away() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot != ""
}

func (m *machine) setAway(snapshot string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snapshot = snapshot
}

// Regain implements server.Machine. Once begun it is not given up: without it there
// is no VM.
func (m *machine) Regain(ctx context.Context) error {
	m.mu.Lock()
	name := m.snapshot
	m.mu.Unlock()
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
	defer cancel()
	if err := m.unfence(name); err != nil {
		return err
	}
	if err := m.restore(ctx, name); err != nil {
		return err
	}
	m.setAway("")
	return m.link.Folder.RemoveAll(name)
}

// unfence has a snapshot's configuration not ask for Landlock: the process is
// confined already, and the kernel allows no more than 16 fences in each other
// (landlock(7)).
func (m *machine) unfence(name string) error {
	file := path.Join(name, configName)
	raw, err := readFile(m.link.Folder, file)
	if err != nil {
		return err
	}
	var config chapi.VMConfig
	if err := json.Unmarshal(raw, &config); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	config.Landlock, config.LandlockRules = false, nil
	return m.writeConfig(name, &config)
}

// writeConfig puts a configuration in the place of a snapshot's.
func (m *machine) writeConfig(folder string, config *chapi.VMConfig) error {
	content, err := json.Marshal(config)
	if err != nil {
		return err
	}
	file := path.Join(folder, configName)
	if err := m.link.Folder.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.link.Folder.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	return m.give(file)
}

// LoadState implements server.Machine. What the image says of the configuration is
// not believed: it is the plan's.
func (m *machine) LoadState(ctx context.Context, f *os.File, sharedRAM bool) error {
	if err := m.makeFolder(loadName); err != nil {
		return err
	}
	files, err := unpack(f, m.link.Folder, loadName, sharedRAM)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := m.give(file); err != nil {
			return err
		}
	}
	config := m.vm.Restored()
	if err := m.writeConfig(loadName, &config); err != nil {
		return err
	}
	if err := m.restore(ctx, loadName); err != nil {
		return err
	}
	return m.link.Folder.RemoveAll(loadName)
}

// restore makes the VM of a snapshot; it is paused then.
func (m *machine) restore(ctx context.Context, name string) error {
	r := chapi.Restore{Folder: path.Join(m.vm.Folder, name), Mode: chapi.RestoreCopy}
	for _, t := range m.taps {
		r.Nets = append(r.Nets, chapi.RestoreNet{ID: t.id, Taps: []*os.File{t.file}})
	}
	return wrap(m.api.Restore(ctx, r))
}
