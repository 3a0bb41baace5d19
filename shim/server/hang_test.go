package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
	"github.com/vmlet/vmlet/test/faultfs"
)

// hanging has a disk hang in the next such operations, until release.
func hanging(fs *faultfs.FS, f faultfs.Fault) (reached <-chan struct{}, release func()) {
	come, goOn := make(chan struct{}, 1), make(chan struct{})
	f.Times = faultfs.Forever
	f.Wait = func(context.Context) {
		select {
		case come <- struct{}{}:
		default:
		}
		<-goOn
	}
	fs.Arm(f)
	return come, sync.OnceFunc(func() { fs.Disarm(); close(goOn) })
}

func isRefused(err error) bool {
	var e *shim.Error
	return errors.As(err, &e) && e.Code == shim.CodePrecondition
}

// TestDiskHangsInSave: where a disk doesn't answer, a save that is given up lets the guest
// go on all the same, and what was written is removed when the disk answers.
func TestDiskHangsInSave(t *testing.T) {
	fs := faultfs.ForTest(t)
	s := newScene(t, func(o *Options) { o.ClearWithin = time.Millisecond })
	s.launch()
	s.machine.set(true)
	image := filepath.Join(fs.Path(), "image")
	for name, fault := range map[string]faultfs.Fault{
		"folder":        {Op: faultfs.OpMkdir},
		"state made":    {Op: faultfs.OpCreate, Name: memory.StateName},
		"state written": {Op: faultfs.OpWrite, Name: memory.StateName},
		"memory made":   {Op: faultfs.OpCreate, Name: memory.MemoryName},
		"memory":        {Op: faultfs.OpWrite, Name: memory.MemoryName},
		"memory synced": {Op: faultfs.OpFsync, Name: memory.MemoryName},
		"state synced":  {Op: faultfs.OpFsync, Name: memory.StateName},
	} {
		t.Run(name, func(t *testing.T) {
			reached, release := hanging(fs, fault)
			defer release() // or this process could not even be killed
			ctx, cancel := context.WithCancel(s.ctx)
			result := make(chan error, 1)
			go func() {
				_, err := s.client.Save(ctx, s.saveArgs(image), nil, nil)
				for ; isRefused(err); _, err = s.client.Save(ctx, s.saveArgs(image), nil, nil) {
				} // the last one's folder is gone, and its save not quite over
				result <- err
			}()
			select {
			case <-reached:
			case err := <-result:
				t.Fatalf("it doesn't come to that: %v", err)
			}
			cancel()
			if err := <-result; !strings.Contains(err.Error(), "has not answered") {
				t.Errorf("error %v", err)
			}
			if !s.machine.isRunning() {
				t.Error("the guest stands still")
			}
			_, err := s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "elsewhere")), nil, nil)
			wantCode(t, err, shim.CodePrecondition)
			if !strings.Contains(err.Error(), image) {
				t.Errorf("error %v does not say where", err)
			}
			release()
			s.waitFor(func() bool { _, err := os.Lstat(image); return os.IsNotExist(err) })
		})
	}
	t.Run("when it is removed, and the VM is killed", func(t *testing.T) {
		s.waitFor(func() bool { _, err := s.client.Save(s.ctx, s.saveArgs(image), nil, nil); return err == nil })
		reached, release := hanging(fs, faultfs.Fault{Op: faultfs.OpUnlink})
		defer release()
		if err := s.client.Abort(s.ctx); err == nil || !strings.Contains(err.Error(), "has not answered") {
			t.Errorf("error %v", err)
		}
		<-reached
		if !s.machine.isRunning() {
			t.Error("the guest stands still")
		}
		exit, err := s.client.Kill(s.ctx)
		s.check(err)
		if exit.Reason != shim.ReasonKilled {
			t.Errorf("exit %+v", exit)
		}
	})
}

// leavingMachine has its caller give up as soon as it has saved its state.
type leavingMachine struct {
	*fakeMachine
	giveUp func()
}

func (m leavingMachine) SaveState(context.Context, *os.File, bool) error {
	m.giveUp()
	return nil
}

// TestStateOfGivenUpSave is kept nowhere.
func TestStateOfGivenUpSave(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	v := withEngine(&vm{ram: os.Stdin}, nil, leavingMachine{new(fakeMachine), func() { cancel(fault.ErrAborted) }})
	if err := new(prepared).saveState(ctx, v, nil); !errors.Is(err, fault.ErrAborted) {
		t.Errorf("error %v", err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "device state") {
			t.Errorf("%s is open", to)
		}
	}
}
