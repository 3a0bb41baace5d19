package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/test/faultfs"
)

const vmName = "web"

// inStore does something with a store whose state folder is in dir; its run folder
// is elsewhere, as it is on a node.
func inStore(run, dir string, do func(*Store) error) error {
	s, err := Open(filepath.Join(dir, "state"), run)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

func stateOf(vm *nodev1.VirtualMachine, state nodev1.State) *nodev1.VirtualMachine {
	vm = proto.CloneOf(vm)
	vm.Status.State = state
	return vm
}

const (
	before = nodev1.State_STATE_RUNNING
	after  = nodev1.State_STATE_SAVED
	// beside is another file of a VM, as its firmware variables are.
	beside = "variables"
)

// made is a store with one VM.
func made(run string) func(dir string) error {
	return func(dir string) error {
		return inStore(run, dir, func(s *Store) error {
			if err := s.Save(stateOf(record(vmName), before)); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(s.StateDir(vmName), beside), []byte("variables"), 0o600)
		})
	}
}

// recorded reads a VM as the next agent does; STATE_UNSPECIFIED: there is none.
func recorded(run, dir string) (state nodev1.State, err error) {
	err = inStore(run, dir, func(s *Store) error {
		if gone, err := s.Sweep(vmName); gone || err != nil {
			return err
		}
		vm, err := s.Load(vmName)
		if err == nil {
			state = vm.GetStatus().GetState()
			_, err = os.Stat(filepath.Join(s.StateDir(vmName), beside))
		}
		return err
	})
	return state, err
}

// oneOf sees that a VM is recorded in one of these states.
func oneOf(run, dir string, want ...nodev1.State) error {
	got, err := recorded(run, dir)
	if err != nil {
		return err
	}
	for _, w := range want {
		if got == w {
			return nil
		}
	}
	return fmt.Errorf("recorded as %v, want %v", got, want)
}

// replace is what the agent does at each change of a VM.
func replace(run string) func(dir string) error {
	return func(dir string) error {
		return inStore(run, dir, func(s *Store) error { return s.Save(stateOf(record(vmName), after)) })
	}
}

func remove(run string) func(dir string) error {
	return func(dir string) error {
		return inStore(run, dir, func(s *Store) error { return s.Delete(vmName) })
	}
}

// TestSaveFaults: a record reads as before or after, and the error says which file.
func TestSaveFaults(t *testing.T) {
	run := faultfs.MemoryDir(t)
	faultfs.ForTest(t).Walk(t, faultfs.Walk{
		Prepare: made(run),
		Do:      replace(run),
		Check: func(dir string, fault faultfs.Fault, err error) error {
			if err == nil {
				return oneOf(run, dir, after)
			}
			return errors.Join(oneOf(run, dir, before, after), faultfs.Names(err, dir, 0))
		},
	})
}

// TestLoadFaults: a record that can't be read is an error, never another record.
func TestLoadFaults(t *testing.T) {
	run := faultfs.MemoryDir(t)
	faultfs.ForTest(t).Walk(t, faultfs.Walk{
		Prepare: made(run),
		Do:      func(dir string) error { return oneOf(run, dir, before) },
		Check: func(dir string, fault faultfs.Fault, err error) error {
			if err == nil {
				return nil
			}
			return errors.Join(faultfs.Names(err, filepath.Base(dir), fault.Errno), oneOf(run, dir, before))
		},
	})
}

// TestDeleteFaults: a VM is there, or gone, and its deletion can be repeated.
func TestDeleteFaults(t *testing.T) {
	run := faultfs.MemoryDir(t)
	faultfs.ForTest(t).Walk(t, faultfs.Walk{
		Prepare: made(run),
		Do:      remove(run),
		Check: func(dir string, fault faultfs.Fault, err error) error {
			if bad := oneOf(run, dir, before, nodev1.State_STATE_UNSPECIFIED); bad != nil {
				return bad
			}
			if err == nil {
				return oneOf(run, dir, nodev1.State_STATE_UNSPECIFIED)
			}
			if bad := faultfs.Names(err, dir, 0); bad != nil {
				return bad
			}
			return errors.Join(remove(run)(dir), oneOf(run, dir, nodev1.State_STATE_UNSPECIFIED))
		},
	})
}

// marking does something and says so.
func marking(f *faultfs.FS, do func(dir string) error) func(dir string) error {
	return func(dir string) error {
		err := do(dir)
		f.Mark("done")
		return err
	}
}

// TestFirstSavePowerCut: the first VM of a new agent is there once it is created.
func TestFirstSavePowerCut(t *testing.T) {
	run := faultfs.MemoryDir(t)
	f := faultfs.ForTest(t)
	f.Cut(t, faultfs.Cuts{
		Do: marking(f, func(dir string) error {
			return inStore(run, dir, func(s *Store) error { return s.Save(record(vmName)) })
		}),
		Check: func(dir string, s faultfs.State) error {
			_, err := os.Stat(filepath.Join(dir, "state", vmsFolder, vmName, recordName))
			if errors.Is(err, fs.ErrNotExist) && !s.Marked("done") {
				return nil
			}
			if err != nil {
				return err
			}
			return inStore(run, dir, func(s *Store) error { _, err := s.Load(vmName); return err })
		},
	})
}

// TestSecondTryPowerCut: a VM whose first record could not be written is there when
// the second was.
func TestSecondTryPowerCut(t *testing.T) {
	run := faultfs.MemoryDir(t)
	f := faultfs.ForTest(t)
	f.Cut(t, faultfs.Cuts{
		Prepare: func(dir string) error { return inStore(run, dir, func(*Store) error { return nil }) },
		Do: marking(f, func(dir string) error {
			return inStore(run, dir, func(s *Store) error {
				f.Arm(faultfs.Fault{Op: faultfs.OpFsyncdir, Errno: syscall.EIO})
				err := s.Save(record(vmName))
				if f.Disarm() != 1 || !errors.Is(err, syscall.EIO) {
					return fmt.Errorf("it did not fail: %w", err)
				}
				return s.Save(record(vmName))
			})
		}),
		Check: func(dir string, s faultfs.State) error {
			if !s.Marked("done") {
				return nil
			}
			return inStore(run, dir, func(s *Store) error { _, err := s.Load(vmName); return err })
		},
	})
}

func TestSavePowerCut(t *testing.T) {
	run := faultfs.MemoryDir(t)
	f := faultfs.ForTest(t)
	f.Cut(t, faultfs.Cuts{
		Prepare: made(run),
		Do:      marking(f, replace(run)),
		Check: func(dir string, s faultfs.State) error {
			if s.Marked("done") {
				return oneOf(run, dir, after)
			}
			return oneOf(run, dir, before, after)
		},
	})
}

// TestDeletePowerCut: a VM is whole, with all its files, or gone.
func TestDeletePowerCut(t *testing.T) {
	run := faultfs.MemoryDir(t)
	f := faultfs.ForTest(t)
	f.Cut(t, faultfs.Cuts{
		Prepare: made(run),
		Do:      marking(f, remove(run)),
		Check: func(dir string, s faultfs.State) error {
			if s.Marked("done") {
				return oneOf(run, dir, nodev1.State_STATE_UNSPECIFIED)
			}
			return oneOf(run, dir, before, nodev1.State_STATE_UNSPECIFIED)
		},
	})
}
