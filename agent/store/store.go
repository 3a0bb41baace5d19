// Package store keeps the agent's record of its VMs in folders:
// STATE/vms/NAME survives a reboot, RUN/vms/NAME does not. The folders are the
// truth; there is no other database.
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/internal/atomicfile"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	vmsFolder  = "vms"
	recordName = "vm.json"

	// maxRecord bounds what is read of a vm.json, in bytes. A specification is
	// a few KiB, with a large cloud-init user-data some hundreds.
	maxRecord = 16 << 20
)

// Store is the two folders. Its methods may be called concurrently for
// different VMs.
type Store struct {
	stateDir, runDir string
	locks            []*Lock
}

// Open makes the folders where they are missing and claims them for this
// process.
func Open(stateDir, runDir string) (*Store, error) {
	s := &Store{stateDir: stateDir, runDir: runDir}
	for _, d := range []string{stateDir, runDir} {
		if err := s.claim(d); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (s *Store) claim(dir string) error {
	// Others may pass through the folder (to the socket, where they are
	// allowed), but not look around.
	if err := atomicfile.MakeFolder(dir, 0o711); err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(filepath.Join(dir, vmsFolder), 0o700); err != nil {
		return err
	}
	lock, err := Claim(dir)
	if err != nil {
		return err
	}
	s.locks = append(s.locks, lock)
	return nil
}

// Close gives the folders back.
func (s *Store) Close() error {
	var errs []error
	for _, l := range s.locks {
		errs = append(errs, l.Release())
	}
	s.locks = nil
	return errors.Join(errs...)
}

// StateDir is the folder of a VM that survives a reboot.
func (s *Store) StateDir(name string) string { return filepath.Join(s.stateDir, vmsFolder, name) }

// RunDir is the folder of a VM that does not survive a reboot.
func (s *Store) RunDir(name string) string { return filepath.Join(s.runDir, vmsFolder, name) }

// MakeRunDir makes a VM's run folder, empty: what an earlier run left is gone.
func (s *Store) MakeRunDir(name string) error {
	if err := s.RemoveRunDir(name); err != nil {
		return err
	}
	return os.Mkdir(s.RunDir(name), 0o700)
}

// RemoveRunDir removes a VM's run folder, if it is there.
func (s *Store) RemoveRunDir(name string) error { return os.RemoveAll(s.RunDir(name)) }

// MakeStateDir makes a VM's folder that survives a reboot, if it is not there.
// Without a record it is no VM's yet, and is swept.
func (s *Store) MakeStateDir(name string) error {
	return atomicfile.MakeFolder(s.StateDir(name), 0o700)
}

// Save writes a VM's record, making its folder if need be.
func (s *Store) Save(vm *nodev1.VirtualMachine) error {
	content, err := protojson.MarshalOptions{Multiline: true}.Marshal(vm)
	if err != nil {
		return err
	}
	if err := s.MakeStateDir(vm.GetSpec().GetName()); err != nil {
		return err
	}
	dir := s.StateDir(vm.GetSpec().GetName())
	return atomicfile.ReplaceDurably(filepath.Join(dir, recordName), append(content, '\n'), 0o600)
}

// Load reads a VM's record.
func (s *Store) Load(name string) (*nodev1.VirtualMachine, error) {
	path := filepath.Join(s.StateDir(name), recordName)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(content) > maxRecord {
		return nil, fmt.Errorf("%s: larger than %d bytes: not a VM's record", path, maxRecord)
	}
	vm := new(nodev1.VirtualMachine)
	// A newer agent may have written fields that this one doesn't know.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(content, vm); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if got := vm.GetSpec().GetName(); got != name {
		return nil, fmt.Errorf("%s: it is the record of %q, in the folder of %q", path, got, name)
	}
	return vm, nil
}

// Delete removes a VM's folders. The record goes first, and for good: a folder
// without one is no VM, and is swept; a VM without its other files must not come back
// after a power cut.
func (s *Store) Delete(name string) error {
	dir := s.StateDir(name)
	if err := removeIfThere(filepath.Join(dir, recordName)); err != nil {
		return err
	}
	if err := atomicfile.SyncFolder(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(s.RemoveRunDir(name), os.RemoveAll(dir), atomicfile.SyncFolder(filepath.Dir(dir)))
}

// Names lists the VMs that have a folder that survives a reboot, sorted.
func (s *Store) Names() ([]string, error) { return folders(filepath.Join(s.stateDir, vmsFolder)) }

// RunNames lists the VMs that have a run folder, sorted.
func (s *Store) RunNames() ([]string, error) { return folders(filepath.Join(s.runDir, vmsFolder)) }

// Sweep removes what a crash in the middle of a creation or a deletion left of
// a VM: half-written files of an agent's, and the folder if it has no record. The VM's
// shim may be writing down just now how it has ended.
func (s *Store) Sweep(name string) (gone bool, err error) {
	dir := s.StateDir(name)
	if _, err := os.Lstat(filepath.Join(dir, recordName)); errors.Is(err, fs.ErrNotExist) {
		return true, os.RemoveAll(dir)
	} else if err != nil {
		return false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, e := range entries {
		if atomicfile.IsTemp(e.Name()) {
			errs = append(errs, removeIfThere(filepath.Join(dir, e.Name())))
		}
	}
	return false, errors.Join(errs...)
}

func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
