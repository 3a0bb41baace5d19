package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

func (m *fakeMachine) SetKeys(_ context.Context, user string, keys []string) error {
	return m.guest.take(user, "keys "+strings.Join(keys, "|"))
}

func (m *fakeMachine) SetPassword(_ context.Context, user, password string) error {
	return m.guest.take(user, "password "+password)
}

func (g *fakeGuest) take(user, what string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuses != nil {
		return g.refuses
	}
	g.has = append(g.has, user+" "+what)
	return nil
}

func (g *fakeGuest) given() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.has)
}

// secretVolume is a folder as the kubelet makes it.
func secretVolume(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, "..data", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCredentials: they get into the guest when its agent is there, again when they change, and
// not otherwise; agents are told, those too that come later, and of no secret.
func TestCredentials(t *testing.T) {
	keys := secretVolume(t, map[string]string{"a": "ssh-ed25519 AAAA one\n# no key\n", "b": "ssh-ed25519 BBBB two"})
	passwords := secretVolume(t, map[string]string{"ann": "pass word\n"})
	s := newScene(t, func(o *Options) {
		o.CredentialsEvery = time.Millisecond
		o.Pod = &Pod{Credentials: []Credential{{Folder: keys, Users: []string{"ann", "bob"}}, {Folder: passwords}}}
	})
	s.machine.guest.set(func(g *fakeGuest) { g.refuses = fmt.Errorf("%w: it boots", control.ErrNoGuestAgent) })
	s.launch()
	told := func() *shim.Credentials {
		t.Helper()
		select {
		case e := <-s.client.Events():
			return e.Credentials
		case <-s.ctx.Done():
			t.Fatal("nothing is told")
		}
		return nil
	}
	s.machine.guest.set(func(g *fakeGuest) { g.refuses = errors.New("no such user") })
	if c := told(); c == nil || c.Synchronized || !strings.Contains(c.Message, `"ann": no such user`) {
		t.Fatalf("%+v", c)
	}
	s.machine.guest.set(func(g *fakeGuest) { g.refuses = nil })
	if c := told(); c == nil || !c.Synchronized {
		t.Fatalf("%+v", c)
	}
	both := " keys ssh-ed25519 AAAA one|ssh-ed25519 BBBB two"
	want := []string{"ann" + both, "bob" + both, "ann password pass word"}
	if got := s.machine.guest.given(); !slices.Equal(got, want) {
		t.Errorf("the guest was given %q, want %q", got, want)
	}
	s.check(os.WriteFile(filepath.Join(passwords, "..data", "ann"), []byte("another"), 0o600))
	s.waitFor(func() bool { return slices.Contains(s.machine.guest.given(), "ann password another") })
	if got := s.machine.guest.given(); len(got) != 2*len(want) {
		t.Errorf("the guest was given %d, want each twice: %q", len(got), got)
	}
	if c := s.dial().Welcome().Credentials; c == nil || !c.Synchronized {
		t.Errorf("an agent that comes later is told %+v", c)
	}
}

// TestSecretsAreBounded: a volume may have anything.
func TestSecretsAreBounded(t *testing.T) {
	large := secretVolume(t, map[string]string{"a": strings.Repeat("x", maxSecret+1)})
	many := make(map[string]string)
	for i := range maxSecretFiles + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, folder := range map[string]string{"large": large, "many": secretVolume(t, many), "none": filepath.Join(large, "none")} {
		if _, err := readSecrets([]Credential{{Folder: folder}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
