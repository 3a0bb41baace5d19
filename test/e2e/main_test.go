package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// patience bounds every wait, see suites.Patience; nothing takes as long unless it is broken.
const patience = 4 * time.Minute

// bin is the folder with the programs under test, and the guests that they run.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if why := unfit(); why != "" {
		// Each test says so for itself.
		return m.Run()
	}
	var err error
	if bin, err = os.MkdirTemp("", "vmlet-e2e-bin-"); err == nil {
		defer os.RemoveAll(bin)
		err = errors.Join(os.Chmod(bin, 0o755), build()) // a stranger runs the client, too
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return suites.StartsVMs(m)
}

// unfit says why nothing can be tested here; empty: it can.
func unfit() string {
	if os.Geteuid() != 0 {
		return "vmlet's agent needs root: run the tests as root"
	}
	if _, err := ownQEMU(); err != nil {
		return "no qemu-system-x86_64: run test/setup test"
	}
	return ""
}

// build makes the programs: client and agent with the race detector where there is a
// C compiler for it, the shim as it is shipped.
func build() error {
	race := []string{"-race"}
	cc, err := exec.Command("go", "env", "CC").Output()
	if err == nil {
		_, err = exec.LookPath(strings.TrimSpace(string(cc)))
	}
	if err != nil {
		race = nil
	}
	for _, program := range []struct {
		name  string
		flags []string
	}{{"vmlet", race}, {"vmlet-agent", race}, {"vmlet-shim", []string{"-trimpath", "-ldflags=-s -w"}}} {
		args := append([]string{"build", "-o", filepath.Join(bin, program.name)}, program.flags...)
		cmd := exec.Command("go", append(args, "github.com/vmlet/vmlet/cmd/"+program.name)...)
		cmd.Env = os.Environ()
		if program.name == "vmlet-shim" {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", program.name, err, out)
		}
	}
	return nil
}

func ownQEMU() (string, error) { return exec.LookPath("qemu-system-x86_64") }

// qemu is one that this machine has.
type qemu struct{ name, binary string }

// qemus are the machine's own and, where test/setup has unpacked one, a newer.
func qemus(t *testing.T) []qemu {
	t.Helper()
	own, err := ownQEMU()
	if err != nil {
		t.Skip(unfit())
	}
	found := []qemu{{"own", own}}
	if newer, err := guest.QEMU10(); err == nil {
		found = append(found, qemu{"10", newer})
	}
	return found
}

// qemusOrSkip skips a test where nothing can be tested.
func qemusOrSkip(t *testing.T) []qemu {
	t.Helper()
	if why := unfit(); why != "" {
		t.Skip(why)
	}
	all := qemus(t)
	if testing.Short() {
		return all[len(all)-1:]
	}
	return all
}

// oneOf are those that a test goes through that takes long with each: one, first or last
// of them, as others take the other; or all.
func oneOf(t *testing.T, pick func([]qemu) qemu) []qemu {
	t.Helper()
	all := qemusOrSkip(t)
	if everything.Wanted() {
		return all
	}
	return []qemu{pick(all)}
}

func first(all []qemu) qemu { return all[0] }
func final(all []qemu) qemu { return all[len(all)-1] }

// newest is the one that can do most.
func newest(t *testing.T) qemu {
	t.Helper()
	all := qemus(t)
	return all[len(all)-1]
}

// hypervisors are those that the tiny guest runs under here.
func hypervisors(t *testing.T) []string {
	t.Helper()
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Logf("not under KVM: %v", err)
		return []string{"emulation"}
	}
	kvm.Close()
	return []string{"emulation", "kvm"}
}
