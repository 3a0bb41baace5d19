package inside

import (
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"regexp"
	"strings"
	"testing"
)

// Guests that are running when the node is shut down, each with a disk on a filesystem
// that systemd unmounts then: one that obeys its power button, and one that doesn't.
const (
	obeys   = "obeys"
	ignores = "ignores"
	storage = "/srv"
)

// TestBeforeReboot leaves guests running for an orderly shutdown.
func TestBeforeReboot(t *testing.T) {
	insideOrSkip(t)
	command(t, "sh", "-e", "-c", "echo LABEL=storage "+storage+" ext4 defaults 0 0 >>/etc/fstab\nsystemctl daemon-reload\nsystemctl start srv.mount")
	for _, name := range []string{obeys, ignores} {
		disk := storage + "/" + name
		command(t, "truncate", "-s", "1M", disk)
		file := "/root/" + name + ".yaml"
		write(t, file, "stopGracePeriod: 5s\n")
		boot(t, name, "-f", file, "--kernel", guests+"/"+name, "--disk", disk)
	}
}

// TestAfterReboot looks at how they ended.
func TestAfterReboot(t *testing.T) {
	insideOrSkip(t)
	journal := command(t, "journalctl", "--boot=-1", "--no-pager", "--output=short-monotonic")
	_, shutdown, began := strings.Cut(journal, "Stopped target multi-user.target")
	if !began {
		t.Fatalf("the journal has no shutdown:\n%s", journal)
	}
	for _, bad := range regexp.MustCompile(`.*(Failed unmounting|vmlet.*(timed out|Failed with result)).*`).FindAllString(shutdown, -1) {
		t.Errorf("at shutdown: %s", bad)
	}
	if !strings.Contains(shutdown, "Unmounted srv.mount") {
		t.Error("the disk's filesystem was not unmounted")
	}
	for name, want := range map[string]string{obeys: "the guest shut down", ignores: "killed: the guest did not"} {
		v := vm{name}
		status := v.get(t).GetStatus()
		if status.GetState() != nodev1.State_STATE_STOPPED || !strings.HasPrefix(status.GetMessage(), want) {
			t.Errorf("%s is %v: %s; want it to be stopped: %s", name, status.GetState(), status.GetMessage(), want)
		}
		if n := strings.Count(command(t, "vmlet", "logs", name), guest.PowerLine); n != 1 {
			t.Errorf("the power button of %s was pressed %d times", name, n)
		}
		command(t, "vmlet", "delete", name)
	}
	if t.Failed() {
		t.Logf("the journal of the shutdown:%s", shutdown)
	}
}
