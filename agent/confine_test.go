package agent

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/config"
	"golang.org/x/sys/unix"
)

// confined makes a run of this test the agent of a DaemonSet.
const confined = "VMLET_TEST_CONFINED"

// TestConfine: an agent of pods' VMs, whose container has all capabilities, inheritable ones
// too, keeps the three that docs/rights.md gives the reasons for, and can't get others.
func TestConfine(t *testing.T) {
	if os.Getenv(confined) != "" {
		enabled, helper := true, false
		// The first time it is executed again, from the beginning.
		if err := Confine(config.Config{Pods: config.PodsConfig{Enabled: &enabled}, Network: config.NetworkConfig{Helper: &helper}}); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile("/proc/self/status")
		fmt.Printf("%s%v\n", status, err)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("capabilities are root's to give up")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestConfine$")
	cmd.Env = append(os.Environ(), confined+"=1")
	// Inheritable, too: some container runtimes leave them so.
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_NET_ADMIN}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	three := fmt.Sprintf("%016x", uint64(1<<unix.CAP_DAC_OVERRIDE|1<<unix.CAP_SYS_PTRACE|1<<unix.CAP_KILL))
	none := fmt.Sprintf("%016x", 0)
	for set, want := range map[string]string{"CapInh": none, "CapPrm": three, "CapEff": three, "CapBnd": three, "CapAmb": none} {
		if !strings.Contains(string(out), set+":\t"+want) {
			t.Errorf("%s is not %s: %s", set, want, out)
		}
	}
}
