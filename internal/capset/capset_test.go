package capset

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
// arguments, also if it has inherited others.
func TestKeepOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("capabilities are root's to drop")
	}
	kept := uint64(1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_KILL)
	want := sets{"CapInh": 0, "CapPrm": kept, "CapEff": kept, "CapBnd": kept, "CapAmb": 0}
	for name, inherited := range map[string][]uintptr{
		"nothing inherited":  nil,
		"another inherited":  {unix.CAP_NET_ADMIN},
		"one kept inherited": {unix.CAP_KILL},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "an", "argument")
			cmd.Env = append(os.Environ(), childVariable+"=1")
			// These are in the child's inheritable set, too.
			cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: inherited}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			path := filepath.Join(t.TempDir(), "status")
			if err := os.WriteFile(path, out, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := readSets(path); err != nil || !maps.Equal(got, want) {
				t.Errorf("it has %x, %v; want %x", got, err, want)
			}
			if !strings.Contains(string(out), "[an argument]") {
				t.Errorf("the arguments are lost: %s", out)
			}
		})
	}
}

func TestReadSets(t *testing.T) {
	const whole = "Name:\tx\nCapInh:\t0\nCapPrm:\t1\nCapEff:\t1\nCapBnd:\t000001ffffffffff\nCapAmb:\t0\n"
	for name, c := range map[string]struct {
		content string
		good    bool
	}{
		"whole":         {whole, true},
		"no number":     {strings.Replace(whole, "1ff", "x", 1), false},
		"without a set": {strings.Replace(whole, "CapAmb", "Cap", 1), false},
		"empty":         {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readSets(path)
			if (err == nil) != c.good {
				t.Errorf("error %v", err)
			}
			if c.good && got["CapBnd"] != 0x1ffffffffff {
				t.Errorf("CapBnd is %x", got["CapBnd"])
			}
		})
	}
	if _, err := readSets("/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestWithin looks at each of the five sets.
func TestWithin(t *testing.T) {
	for _, name := range setNames() {
		s := sets{"CapInh": 1, "CapPrm": 1, "CapEff": 1, "CapBnd": 1, "CapAmb": 1}
		if err := s.within(1); err != nil {
			t.Fatal(err)
		}
		s[name] = 3
		if err := s.within(1); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s has more: %v", name, err)
		}
	}
}
