package capset

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childVariable makes a run of this test program the one that drops.
const childVariable = "VMLET_CAPSET_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if err := KeepOnly(unix.CAP_DAC_OVERRIDE, unix.CAP_KILL); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	status, err := os.ReadFile("/proc/self/status")
	fmt.Println(string(status), err, os.Args[1:])
	os.Exit(0)
}

// TestKeepOnly: root is left with what it keeps, on every thread, and with its
// arguments.
func TestKeepOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("capabilities are root's to drop")
	}
	cmd := exec.Command(os.Args[0], "an", "argument")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := fmt.Sprintf("%016x", uint64(1<<unix.CAP_DAC_OVERRIDE|1<<unix.CAP_KILL))
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
		if !strings.Contains(string(out), set+":\t"+want) {
			t.Errorf("%s is not %s: %s", set, want, out)
		}
	}
	if !strings.Contains(string(out), "[an argument]") {
		t.Errorf("the arguments are lost: %s", out)
	}
}

func TestBounding(t *testing.T) {
	for content, want := range map[string]uint64{
		"Name:\tx\nCapBnd:\t000001ffffffffff\n": 0x1ffffffffff, "CapBnd:\t0000000000000000\n": 0, "CapBnd:\tx\n": 1, "": 1,
	} {
		path := filepath.Join(t.TempDir(), "status")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := bounding(path)
		if (err != nil) != (want == 1) || err == nil && got != want {
			t.Errorf("%q: %x, %v", content, got, err)
		}
	}
	if _, err := bounding("/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
