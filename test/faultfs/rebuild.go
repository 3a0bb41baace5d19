package faultfs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Write makes a folder's content what the disk has.
func (s State) Write(dir string) error {
	d := &disk{State: s, names: make(map[uint64]map[string]uint64), modes: make(map[uint64]uint32)}
	for id, n := range s.rec.base {
		d.names[id], d.modes[id] = maps.Clone(n.names), n.mode
	}
	for i, e := range s.rec.log[:s.at] {
		if !slices.Contains(s.lost, i) {
			d.replay(e)
		}
	}
	return d.folder(rootID, dir)
}

// disk is the names of a state; contents are written straight to files.
type disk struct {
	State
	names map[uint64]map[string]uint64
	modes map[uint64]uint32
}

func (d *disk) replay(e entry) {
	switch e.kind {
	case kindPut:
		d.put(e.dir, e.name, e.id)
		d.modes[e.id] = e.mode
	case kindDrop:
		delete(d.names[e.dir], e.name)
	case kindMove:
		// A file whose creation was lost has no name to lose; renamed it has one.
		id := d.names[e.dir][e.name]
		if id == 0 {
			id = d.before(e)
		}
		delete(d.names[e.dir], e.name)
		d.put(e.toDir, e.toName, id)
	case kindMode:
		d.modes[e.id] = d.modes[e.id]&syscall.S_IFMT | e.mode&0o7777
	}
}

func (d *disk) put(dir uint64, name string, id uint64) {
	if d.names[dir] == nil {
		d.names[dir] = make(map[string]uint64)
	}
	d.names[dir][name] = id
}

// before finds what had the name when it was renamed, and the mode that it was made with.
func (d *disk) before(move entry) uint64 {
	for _, e := range slices.Backward(d.rec.log[:d.at]) {
		if e.kind == kindPut && e.dir == move.dir && e.name == move.name {
			d.modes[e.id] = e.mode
			return e.id
		}
	}
	return d.rec.base[move.dir].names[move.name]
}

func (d *disk) folder(id uint64, path string) error {
	for _, name := range slices.Sorted(maps.Keys(d.names[id])) {
		child, to := d.names[id][name], filepath.Join(path, name)
		if d.modes[child]&syscall.S_IFMT != syscall.S_IFDIR {
			if err := d.file(child, to); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o700), d.folder(child, to)); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) file(id uint64, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Chmod(os.FileMode(d.modes[id]&0o777)), f.Close()) }()
	if _, err := f.Write(d.rec.base[id].content); err != nil {
		return err
	}
	for i, e := range d.rec.log[:d.at] {
		if e.id != id || slices.Contains(d.lost, i) {
			continue
		}
		if err := d.write(f, i, e); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) write(f *os.File, i int, e entry) error {
	switch e.kind {
	case kindWrite:
		if n, torn := d.torn[i]; torn {
			e.data = e.data[:n]
		}
		_, err := f.WriteAt(e.data, e.off)
		return err
	case kindTruncate:
		return f.Truncate(e.off)
	case kindExtend:
		st, err := f.Stat()
		if err != nil || st.Size() >= e.off {
			return err
		}
		return f.Truncate(e.off)
	}
	return nil
}
