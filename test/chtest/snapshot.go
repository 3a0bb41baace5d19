package chtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The files of a snapshot's folder.
const (
	configFile = "config.json"
	stateFile  = "state.json"
	memoryFile = "memory-ranges"
)

// section is one of state.json: parts of its own, and data that is JSON in a
// string.
type section struct {
	Snapshots map[string]section `json:"snapshots"`
	Data      *sectionData       `json:"snapshot_data"`
}

type sectionData struct {
	State string `json:"state"`
}

// memoryState is the memory manager's section.
type memoryState struct {
	Ranges struct {
		Data []memoryRange `json:"data"`
	} `json:"memory_ranges"`
}

func newSection(value any) (section, error) {
	text, err := asJSON(value)
	return section{Snapshots: map[string]section{}, Data: &sectionData{text}}, err
}

// folder is a URL's, which has to be one that is there.
func folder(url string) (string, error) {
	path, ok := strings.CutPrefix(url, "file://")
	if !ok {
		return "", fmt.Errorf("%q: want file://, and a folder", url)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", path)
	}
	return path, nil
}

// snapshot writes a VM that is paused. The event that it is done comes before the
// files are written.
func (m *VMM) snapshot(b *snapshotBody) error {
	v := m.vm
	if v == nil {
		return errNotBooted()
	}
	m.events.emit("vm", "snapshotting", nil)
	if v.state != paused {
		return fmt.Errorf("a VM that is %s can't be written down", v.state)
	}
	ranges := v.ram.unsaved()
	m.events.emit("vm", "snapshotted", nil)
	m.dawdle("vm.snapshot")
	path, err := folder(b.URL)
	if err != nil {
		return causedBy(err, "the snapshot can't be written")
	}
	return causedBy(m.writeSnapshot(path, ranges), "the snapshot can't be written")
}

func (m *VMM) writeSnapshot(path string, ranges []memoryRange) error {
	var memory memoryState
	memory.Ranges.Data = ranges
	state, err := newSection(map[string]any{"common_cpuid": []any{}})
	for name, value := range map[string]any{"memory-manager": memory, "cpu-manager": map[string]any{"vcpus": m.vm.vcpus}, "device-manager": m.vm.bus.tree()} {
		part, partErr := newSection(value)
		state.Snapshots[name] = part
		err = errors.Join(err, partErr)
	}
	if err != nil {
		return err
	}
	for _, document := range []struct {
		name  string
		value any
	}{{configFile, m.config}, {stateFile, state}} {
		text, err := asJSON(document.value)
		if err != nil {
			return err
		}
		if err := m.writeNew(filepath.Join(path, document.name), func(file *os.File) error {
			_, err := io.WriteString(file, text)
			return err
		}); err != nil {
			return err
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	return m.writeNew(filepath.Join(path, memoryFile), func(file *os.File) error { return m.vm.ram.save(file, ranges) })
}

// writeNew makes a file that must not be there yet.
func (m *VMM) writeNew(path string, write func(*os.File) error) error {
	file, err := m.fence.open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// restoring is where a VM's memory comes from.
type restoring struct {
	path   string
	ranges []memoryRange
}

// restoreCall counts the descriptors before it looks at anything else.
func (m *VMM) restoreCall(r *request, b *restoreBody) error {
	var want uint64
	for _, n := range b.Nets {
		want += n.Count
	}
	files := r.files
	if b.Nets == nil {
		files = nil // nobody looks at them
	} else if uint64(len(files)) != want {
		return badRequest()
	}
	if m.vm != nil || m.config != nil {
		return errExists
	}
	path, err := folder(b.URL)
	if err != nil {
		return err
	}
	next, err := m.readConfig(path)
	if err != nil {
		return causedBy(err, "%s", configFile)
	}
	if b.Prefault && b.Mode == "OnDemand" {
		return errors.New("prefault and OnDemand exclude each other")
	}
	if err := next.matchNets(b.Nets); err != nil {
		return err
	}
	r.files = nil
	m.giveNets(next, b.Nets, files)
	if err := m.restore(next, path, b.Resume); err != nil {
		if deleting := m.delete(); deleting != nil {
			return deleting
		}
		return err
	}
	return nil
}

func (m *VMM) readConfig(path string) (*config, error) {
	file, err := m.fence.open(filepath.Join(path, configFile), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	c := new(config)
	return c, document(data, c)
}

// matchNets wants descriptors for each network device that had some, as many.
func (c *config) matchNets(given []restoreNet) error {
	counts := map[string]uint64{}
	for _, n := range given {
		if _, twice := counts[n.ID]; twice {
			return fmt.Errorf("net_fds has %q twice", n.ID)
		}
		counts[n.ID] = n.Count
	}
	for _, n := range c.Net {
		if had := uint64(len(n.Fds)); had > 0 && counts[n.ID] != had {
			return fmt.Errorf("network device %q needs %d descriptors", n.ID, had)
		}
	}
	return nil
}

// giveNets hands out descriptors in their order. Those that nobody had asked for
// are closed.
func (m *VMM) giveNets(c *config, given []restoreNet, files []*os.File) {
	for _, g := range given {
		own := files[:g.Count]
		files = files[g.Count:]
		for i := range c.Net {
			if n := &c.Net[i]; n.ID == g.ID && n.Fds != nil {
				n.Fds = m.keep(own)
				own = nil
			}
		}
		(&request{files: own}).closeFiles()
	}
}

// restore makes the VM. Whatever fails from here on, it is deleted after.
func (m *VMM) restore(next *config, path string, resume bool) error {
	ranges, err := m.readState(path)
	if err != nil {
		return causedBy(err, "%s", stateFile)
	}
	m.config = next
	if err := m.openConsoles(); err != nil {
		return err
	}
	v, err := m.newVM(&restoring{filepath.Join(path, memoryFile), ranges})
	if err != nil {
		return err
	}
	v.state = paused
	if err := m.restrict(); err != nil {
		v.end()
		return err
	}
	m.events.emit("vm", "restoring", nil)
	if err := errors.Join(v.lockDisks(), v.makeVCPUs()); err != nil {
		v.end()
		return err
	}
	m.vm = v
	m.events.emit("vm", "restored", nil)
	if resume {
		return m.resume()
	}
	return nil
}

func (m *VMM) readState(path string) ([]memoryRange, error) {
	file, err := m.fence.open(filepath.Join(path, stateFile), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	var state section
	if err := json.Unmarshal(data, &state); err != nil {
		return nil, err
	}
	memory := state.Snapshots["memory-manager"].Data
	if state.Data == nil || memory == nil {
		return nil, errors.New("a section is missing")
	}
	var ranges memoryState
	err = json.Unmarshal([]byte(memory.State), &ranges)
	return ranges.Ranges.Data, err
}

// fill reads a VM's memory at once, also where that may be done on demand. Nothing is
// read for a boot.
func (v *vm) fill(r *restoring) error {
	if r == nil || len(r.ranges) == 0 {
		return nil
	}
	file, err := v.vmm.fence.open(r.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return causedBy(errors.Join(v.ram.load(file, r.ranges), file.Close()), "%s can't be read", r.path)
}
