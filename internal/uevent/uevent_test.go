package uevent

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/suites"
)

// patience is long: it only ends a test that has failed.
const patience = 20 * time.Second

func TestMatters(t *testing.T) {
	l := &listener{subsystems: []string{"pci", "mdev"}}
	for message, want := range map[string]bool{
		"": false,
		"bind@/devices/pci0000:00/0000:00:1f.2\x00ACTION=bind\x00SUBSYSTEM=pci\x00SEQNUM=1\x00": true,
		"add@/devices/virtual/net/lo\x00ACTION=add\x00SUBSYSTEM=net\x00":                        false,
		"add@/x\x00SUBSYSTEM=pci":                         true,
		"add@/x\x00SUBSYSTEM=pcie\x00XSUBSYSTEM=pci\x00":  false,
		"SUBSYSTEM=net\x00SUBSYSTEM=pci\x00":              false,
		"libudev\x00\xfe\xed\xca\xfe\x00\x00\x00\x00\x00": false,
	} {
		if got := l.matters([]byte(message)); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}

func FuzzMatters(f *testing.F) {
	f.Add([]byte("add@/x\x00SUBSYSTEM=pci\x00"))
	f.Fuzz(func(_ *testing.T, message []byte) {
		(&listener{subsystems: []string{"pci"}}).matters(message)
	})
}

// The kernel repeats a device's message when its file uevent is written.
func TestListen(t *testing.T) {
	const file = "/sys/devices/virtual/mem/null/uevent"
	changes, stop, err := Listen(t.Context(), "mem")
	if err != nil {
		t.Skip(err)
	}
	others, stopOthers, err := Listen(t.Context(), "pci")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("change"), 0); err != nil {
		t.Skip(err)
	}
	select {
	case <-changes:
	case <-suites.After(t, patience):
		t.Error("it wasn't told")
	}
	stop()
	stop()
	stopOthers()
	if len(others) > 0 {
		t.Error("another subsystem's device was told of")
	}
}

// What another process sends to the group is not the kernel's word.
func TestForged(t *testing.T) {
	if fromKernel(&unix.SockaddrNetlink{Pid: 1}) || fromKernel(nil) || !fromKernel(&unix.SockaddrNetlink{}) {
		t.Error("who has sent it is not told apart")
	}
}
