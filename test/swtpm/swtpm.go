// Package swtpm starts the emulated TPM of Debian's package swtpm, for tests.
package swtpm

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Start runs one, with nothing in it, until the test ends, and returns its control
// socket. The test is skipped where swtpm isn't installed.
func Start(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("swtpm")
	if err != nil {
		t.Skipf("needs a TPM to connect to (Debian's package swtpm): %v", err)
	}
	return start(t, program)
}

// start hands the socket over as a descriptor: it takes connections from the first
// moment on.
func start(t testing.TB, program string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "ctrl")
	listener := listen(t, path)
	defer listener.Close()
	cmd := exec.Command(program, "socket", "--tpm2", "--tpmstate", "dir="+dir, "--ctrl", "type=unixio,fd=3")
	cmd.ExtraFiles = append(cmd.ExtraFiles, listener)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended with its client
		_ = cmd.Wait()
	})
	return path
}

func listen(t testing.TB, path string) *os.File {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	return file
}
