package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/internal/atomicfile"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
)

func open(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(filepath.Join(dir, "state"), filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func record(name string) *nodev1.VirtualMachine {
	return &nodev1.VirtualMachine{
		Id:     "id-" + name,
		Spec:   &specv1.VirtualMachineSpec{Name: name},
		Status: &nodev1.VirtualMachineStatus{State: nodev1.State_STATE_RUNNING},
	}
}

func TestSaveAndLoad(t *testing.T) {
	s := open(t)
	want := record("web")
	for range 2 {
		if err := s.Save(want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load("web")
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("loaded %v, want %v", got, want)
	}
	if err := s.Delete("web"); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Names(); err != nil || len(names) > 0 {
		t.Errorf("after the deletion: %q, %v", names, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	s := open(t)
	for name, content := range map[string]string{
		"half":    `{"id": "a", "spec": {"na`,
		"empty":   ``,
		"another": `{"spec": {"name": "someone-else"}}`,
		"huge":    string(make([]byte, maxRecord+1)),
	} {
		if err := os.Mkdir(s.StateDir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(s.StateDir(name), recordName)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if vm, err := s.Load(name); err == nil {
			t.Errorf("%s: loaded %v", name, vm)
		}
	}
}

// TestLoadNewer reads what a newer agent has written.
func TestLoadNewer(t *testing.T) {
	s := open(t)
	if err := s.Save(record("web")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.StateDir("web"), recordName)
	if err := os.WriteFile(path, []byte(`{"spec": {"name": "web", "colour": "red"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("web"); err != nil {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	s := open(t)
	if err := s.Save(record("web")); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(s.StateDir("web"), "."+recordName+".123"+atomicfile.TempSuffix)
	shims := filepath.Join(s.StateDir("web"), ".exit.json"+atomicfile.TempSuffix) // which writes it now
	for _, path := range []string{temp, shims} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if gone, err := s.Sweep("web"); err != nil || gone {
		t.Errorf("sweeping a VM: %v, %v", gone, err)
	}
	if _, err := os.Stat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a half-written file is left: %v", err)
	}
	if _, err := os.Stat(shims); err != nil {
		t.Errorf("what a shim was writing: %v", err)
	}
	if err := os.Mkdir(s.StateDir("half"), 0o700); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.Sweep("half"); err != nil || !gone {
		t.Errorf("sweeping a folder without a record: %v, %v", gone, err)
	}
}

// TestKilledAgent has a lock that outlives its agent for a moment: a child that is to be a
// shim has it, too.
func TestKilledAgent(t *testing.T) {
	dir := t.TempDir()
	first, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	killed := exec.Command("true")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.file.WriteAt(fmt.Appendln(nil, killed.Process.Pid, "      "), 0); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { first.Release() })
	again, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

func TestSecondAgent(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	first, err := Open(state, filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(state, filepath.Join(dir, "other-run"))
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Folder != state {
		t.Fatalf("a second agent: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// The one that was refused must not have kept its other folder.
	again, err := Open(state, filepath.Join(dir, "other-run"))
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
