package systemd

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// patience bounds how long the guest may say nothing while a processor is idle.
const patience = 5 * time.Minute

// cmdline is the guest's: no cloud-init, but the program that is handed in; and each unit
// that starts and stops is named, which is progress.
const cmdline = guest.CloudDiskCmdline + " cloud-init=disabled systemd.wants=handed-in.service" +
	" systemd.mask=serial-getty@ttyS0.service systemd.show_status=1 systemd.status_unit_format=name systemd.log_color=0"

// switchedOff is what Linux prints last of all.
const switchedOff = "reboot: Power down"

// TestSystemd runs the tests of package inside in a guest, and fails where one of them
// fails or is skipped.
func TestSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a whole Debian under emulation")
	}
	if os.Geteuid() != 0 {
		t.Skip("vmlet's agent needs root: run the tests as root")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("no qemu-system-x86_64: run test/setup test")
	}
	wanted := map[string]bool{"TestNode": true, "TestPackages": true, "TestBeforeReboot": true, "TestAfterReboot": true}
	lines := bootDebian(t)
	var said []string
	for line := ""; !strings.Contains(line, switchedOff); {
		line = next(t, lines, said)
		said = append(said, line)
		if m := verdict.FindStringSubmatch(line); m != nil {
			report(t, m[2], m[1], said)
			delete(wanted, m[2])
			said = nil
		}
	}
	for name := range wanted {
		t.Errorf("%s has not ended before the guest was switched off:\n%s", name, strings.Join(said, "\n"))
	}
}

// verdict is what a test prints when it has ended.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) `)

// report makes a test of the guest's one of this machine.
func report(t *testing.T, name, verdict string, said []string) {
	t.Run(name, func(t *testing.T) {
		if verdict != "PASS" {
			t.Errorf("%s:\n%s", verdict, strings.Join(said, "\n"))
		}
	})
}

// next returns the guest's next line. said is what it said before.
func next(t *testing.T, lines <-chan string, said []string) string {
	t.Helper()
	select {
	case line, more := <-lines:
		if !more {
			t.Fatalf("the console has ended; at last it said\n%s", strings.Join(said, "\n"))
		}
		return line
	case <-suites.After(t, patience):
		t.Fatalf("the guest has said nothing for %v; at last it said\n%s", patience, strings.Join(said, "\n"))
		return ""
	}
}

// scan passes on the lines of a console until it ends.
func scan(console io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(console); in.Scan(); {
			lines <- strings.TrimRight(in.Text(), "\r")
		}
	}()
	return lines
}
