package driver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/vmm/driverkit"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// TestMain makes a run of this program a driver.
func TestMain(m *testing.M) {
	if os.Getenv(wire.CookieVariable) != "" {
		if err := driverkit.Run(context.Background(), driverkit.Stack{Version: "test"}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestNames: programs alone are drivers, those whose names a VMM can have, and not too many.
func TestNames(t *testing.T) {
	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{"microvm": 0o755, "cloud-2": 0o755, "README": 0o644, "Upper": 0o755, "dotted.sh": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := Programs{Folder: folder}
	if got, want := p.Names(), []string{"cloud-2", "microvm"}; !slices.Equal(got, want) {
		t.Errorf("names are %v, want %v", got, want)
	}
	for i := range 2 * MaxPrograms {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint("vmm", i)), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(p.Names()); got != MaxPrograms {
		t.Errorf("%d names, want %d", got, MaxPrograms)
	}
	if got := (&Programs{Folder: filepath.Join(folder, "none")}).Names(); len(got) != 0 {
		t.Errorf("a folder that is missing has %v", got)
	}
}

// TestStart: each connection has a program of its own, and the oldest make room.
func TestStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, f := range []string{folder, filepath.Dir(folder)} { // root starts it as nobody
		if err := os.Chmod(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "microvm"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &Programs{Folder: folder}
	var peers []*wire.Peer
	for range maxStarted + 1 {
		own, end, err := unixsocket.Pair("driver")
		if err != nil {
			t.Fatal(err)
		}
		err = p.Start("microvm", end)
		end.Close()
		if err != nil {
			t.Fatal(err)
		}
		peer := wire.NewPeer(own.(*net.UnixConn), nil)
		defer peer.Close()
		peers = append(peers, peer)
	}
	<-peers[0].Done() // ended for the last
	for i, peer := range peers[1:] {
		if _, err := peer.Call(t.Context(), "Nothing", nil, nil); err == nil || peer.Err() != nil {
			t.Errorf("driver %d has gone: %v", i+1, peer.Err())
		}
	}
	for _, name := range []string{"../microvm", "", "other"} {
		if err := p.Start(name, nil); err == nil {
			t.Errorf("%q was started", name)
		}
	}
}
