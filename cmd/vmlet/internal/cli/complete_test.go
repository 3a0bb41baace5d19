package cli

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/standard"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

func TestCompletion(t *testing.T) {
	n := newFakeNode(t, machine("web", runs), machine("halted", isPaused), machine("off", stopped))
	disks := []*specv1.Disk{{Name: "data", Path: "/d"}, {Path: "/unnamed"}}
	n.vms["off"].Spec.Disks = disks
	n.vms["web"].Status.EffectiveSpec = &specv1.VirtualMachineSpec{
		Disks: disks[:1], Networks: []*specv1.NetworkInterface{{Name: "lan", Mac: "52:54:00:00:00:01"}},
	}
	for _, test := range []struct{ args, want string }{
		{"stop|", "halted\tpaused web\trunning :4"},
		{"stop|web|", "halted\tpaused :4"},
		{"start|", "off\tstopped :4"},
		{"resume|", "halted\tpaused :4"},
		{"delete|", "halted\tpaused off\tstopped web\trunning :4"},
		{"get|web|", ":4"},
		{"console|", "halted\tpaused web\trunning :4"},
		{"save|", "halted\tpaused web\trunning :4"},
		{"save|web|", ":16"},
		{"restore|", ":16"},
		{"image|verify|", ":16"},
		{"resize|", "halted\tpaused off\tstopped web\trunning :4"},
		{"attach|disk|", "halted\tpaused off\tstopped web\trunning :4"},
		{"attach|disk|web|", ":0"},
		{"attach|disk|web|d|--format|", "raw qcow2 :4"},
		{"detach|web|", "data\t/d lan\t52:54:00:00:00:01 :4"},
		{"detach|off|", "data\t/d :4"},
		{"list|-o|", "table wide json yaml name :4"},
		{"topology|-o|", "tree json yaml svg :4"},
		{"topology|--sysfs-root|", ":16"},
		{"run|a|--hypervisor|", "auto " + strings.Join(standard.Registry().Names(), " ") + " :4"},
		{"run|a|--kernel|", ":0"},
		{"--socket|/nonexistent/s|stop|", ":4"},
	} {
		r := n.run(t, append([]string{"__complete"}, strings.Split(test.args, "|")...)...)
		if got := strings.Join(strings.Split(strings.TrimSpace(r.stdout), "\n"), " "); r.code != 0 || got != test.want {
			t.Errorf("%s: %q (code %d, %s), want %q", test.args, got, r.code, r.stderr, test.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := n.run(t, "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "vmlet") {
			t.Errorf("%s: code %d", shell, r.code)
		}
	}
}
