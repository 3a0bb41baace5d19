package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/test/printed"
)

// TestAttach: a container of the pod's user hands its folder to root, and ends when it is asked
// to, whoever is connected.
func TestAttach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes the agent's place: run as root")
	}
	volume, folder := attachFolder(t), attachFolder(t)
	cmd := exec.Command(shimBinary, attachMode, "--socket", filepath.Join(volume, contract.AttachmentSocket), "--path", folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: podUser, Gid: podUser}}
	said := new(printed.Text)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !strings.Contains(said.String(), "handing out "+folder) {
		if ctx.Err() != nil {
			t.Fatalf("it says %q", said.String())
		}
		time.Sleep(time.Millisecond)
	}
	taker := new(filesocket.Taker)
	for range 2 { // a second try of a save asks again
		conn, err := filesocket.DialIn(ctx, volume, contract.AttachmentSocket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		f, err := taker.Folder(ctx, conn, filesocket.Giver{UID: "a"}, "the volume")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, _ := f.Stat()
		if want, err := os.Stat(folder); err != nil || !os.SameFile(got, want) {
			t.Errorf("another folder, %v", err)
		}
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v: %s", err, said.String())
	}
}

// attachFolder is the pod's user's.
func attachFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "attach-") // whose parents are everybody's to enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, podUser, podUser); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestParseAttach(t *testing.T) {
	for args, want := range map[string]string{
		"":                      "",
		"--socket /s --path /p": "",
		"--socket s":            "not an absolute path",
		"--path p":              "not an absolute path",
		"x":                     `unexpected argument "x"`,
		"--teapot":              "teapot",
	} {
		if _, err := parseAttach(strings.Fields(args), io.Discard); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
	h, err := parseAttach(nil, io.Discard)
	if want := filepath.Join(contract.VolumePath, contract.AttachmentSocket); err != nil || h.socket != want {
		t.Errorf("the socket is %s, want %s: %v", h.socket, want, err)
	}
}
