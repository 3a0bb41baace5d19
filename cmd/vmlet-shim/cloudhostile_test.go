package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/chtest"
)

// standIn is a program that does what knobs say.
func standIn(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the VMM is given a user of its own")
	}
	dir, err := os.MkdirTemp("", "vmlet-shim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := chtest.Build(t.Context(), dir)
	if err = errors.Join(err, os.Chmod(dir, 0o755)); err != nil { // for the VMM's user
		t.Fatal(err)
	}
	return program
}

// TestCloudHypervisorFillsItsFolder has the VMM's user leave all kinds of things in
// the VMM's folder: saves go on, and nothing is left or touched elsewhere.
func TestCloudHypervisorFillsItsFolder(t *testing.T) {
	s := newScene(t)
	s.launch(s.cloudPlan(standIn(t)))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.state, shim.VMMFolderName)
	deep := dir
	for range 50 {
		deep = filepath.Join(deep, strings.Repeat("d", 60))
	}
	victim := filepath.Join(s.root, "victim")
	s.check(errors.Join(
		os.MkdirAll(deep, 0o700),
		os.Mkdir(victim, 0o700),
		os.WriteFile(filepath.Join(victim, "file"), []byte("mine"), 0o600),
		os.Symlink(victim, filepath.Join(dir, "load")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.WriteFile(filepath.Join(dir, "huge"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "huge"), 1<<40),
	))
	image := filepath.Join(s.root, "image")
	s.cloudSave(image, true)
	s.goesOn()
	_, err := s.client.Kill(s.ctx)
	s.check(err)
	s.ends(shim.ReasonKilled)
	if got, err := os.ReadFile(filepath.Join(victim, "file")); string(got) != "mine" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(victim, &st); err != nil || st.Uid != 0 {
		t.Errorf("user %d, %v", st.Uid, err)
	}
}

// TestCloudHypervisorMisbehaves has a VMM answer what it likes, or nothing: launches
// and saves end with a word about it, and nothing is left.
func TestCloudHypervisorMisbehaves(t *testing.T) {
	program := standIn(t)
	huge := chtest.Answer{Status: 500, Body: `["x"]`, Size: 64 << 20}
	for name, c := range map[string]struct {
		launch chtest.Knobs
		save   chtest.Knobs
		want   string
	}{
		"create refused":      {launch: chtest.Knobs{Refuse: map[string][]string{"vm.create": {"not today"}}}, want: "not today"},
		"boot refused":        {launch: chtest.Knobs{Refuse: map[string][]string{"vm.boot": {"no kernel"}}}, want: "no kernel"},
		"dies at boot":        {launch: chtest.Knobs{Die: map[string]chtest.Death{"vm.boot": {Code: 7, Words: "my last words"}}}, want: "my last words"},
		"killed at boot":      {launch: chtest.Knobs{Die: map[string]chtest.Death{"vm.boot": {Signal: 9}}}, want: "SIGKILL"},
		"answers a flood":     {launch: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.create": huge}}, want: "too long"},
		"other protocol":      {launch: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.create": {Raw: true, Body: "220 smtp\r\n"}}}, want: "not the cloud-hypervisor API"},
		"floods events":       {launch: chtest.Knobs{Flood: 2000}},
		"snapshot refused":    {save: chtest.Knobs{Refuse: map[string][]string{"vm.snapshot": {"not now"}}}, want: "not now"},
		"no snapshot there":   {save: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.snapshot": {Status: 204}}}, want: "no such file"},
		"lies about pausing":  {save: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.pause": {Status: 204}}}, want: "vm.snapshot"},
		"lies about state":    {save: chtest.Knobs{Answer: map[string]chtest.Answer{"vm.info": {Body: `{"state":[]}`}}}, want: "can't be read"},
		"dies in a snapshot":  {save: chtest.Knobs{Die: map[string]chtest.Death{"vm.snapshot": {Code: 3, Words: "out of memory"}}}, want: "out of memory"},
		"snapshot then death": {save: chtest.Knobs{Die: map[string]chtest.Death{"vm.snapshot": {Done: true, Signal: 11}}}, want: "SIGSEGV"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.check(c.launch.Write(program))
			s.startShim()
			_, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.cloudPlan(program)}, nil, nil)
			if save := c.save.Refuse != nil || c.save.Answer != nil || c.save.Die != nil; save {
				s.check(err)
				s.console(1 << 20).expect("filled 8")
				image := filepath.Join(s.root, "image")
				s.check(c.save.Write(program))
				args := s.saveArgs(image)
				_, err = s.client.Save(s.ctx, args, nil, nil)
				s.check(chtest.Knobs{}.Write(program))
				s.noImage(image)
				if c.save.Die == nil {
					s.goesOn()
				}
			}
			if c.want == "" {
				s.check(err)
				s.goesOn()
			} else if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 8<<10 {
				t.Errorf("%.300v, want %q", err, c.want)
			}
			if c.save.Die == nil { // else the shim ends, too
				s.checkResident("afterwards")
			}
			s.finish()
		})
	}
}

// finish ends what is there, and sees that nothing is left.
func (s *scene) finish() {
	s.t.Helper()
	_, _ = s.client.Kill(s.ctx) // it may have ended
	s.client.Close()
	s.waitFor(func() bool { return !alive(s.shimPID) })
	s.nothingLeft()
	for _, name := range []string{shim.VMMFolderName} {
		if _, err := os.Lstat(filepath.Join(s.state, name)); err == nil {
			s.t.Errorf("left: %s", name)
		}
	}
	log, err := os.ReadFile(filepath.Join(s.state, shim.ShimLogName))
	s.check(err)
	if bytes.Contains(log, []byte("panic")) || len(log) > 64<<10 {
		s.t.Errorf("the shim's log has %d bytes", len(log))
	}
}
