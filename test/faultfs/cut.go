package faultfs

import (
	"os"
	"path/filepath"
	"testing"
)

// Cuts cuts the power at each moment of something, and has each state judged.
type Cuts struct {
	// Prepare fills the filesystem; all of it is durable afterwards. May be nil.
	Prepare func(dir string) error
	// Do is what the power is cut in; it may Mark how far it has come.
	Do func(dir string) error
	// Check judges a state, rebuilt in a folder.
	Check func(dir string, s State) error
}

// limits on the states of one moment.
const (
	shortStates = 16
	longStates  = 2048
)

// Cut runs it and returns how many states there were. The folders that Prepare, Do
// and Check get are the filesystem's root and the state of it.
func (f *FS) Cut(t testing.TB, c Cuts) (states int) {
	t.Helper()
	if c.Prepare != nil {
		if err := c.Prepare(f.path); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Record(); err != nil {
		t.Fatal(err)
	}
	err := c.Do(f.path)
	rec := f.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	limit := shortStates
	if Long() {
		limit = longStates
	}
	dir := filepath.Join(MemoryDir(t), "disk")
	for s := range rec.States(limit, Seed(t)) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(dir, s); err != nil {
			t.Errorf("%v: %v", s, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		states++
	}
	t.Logf("%d operations, %d states after a power cut", len(rec.log), states)
	return states
}
