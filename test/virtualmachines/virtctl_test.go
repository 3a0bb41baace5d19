package virtualmachines_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/suites"
)

// testVirtctl: an unmodified virtctl, which VMLET_VIRTCTL names, does with a VM what it does with
// KubeVirt's.
func (v *installed) testVirtctl(t *testing.T) {
	program := os.Getenv("VMLET_VIRTCTL")
	if program == "" {
		t.Skip("VMLET_VIRTCTL names no virtctl of KubeVirt v1.9")
	}
	must(t, v.Apply(v.ctx, reached))
	v.printed(t, "reached", kubevirtv1.StatusRunning)
	run := func(stdin string, args ...string) (string, error) { return v.virtctl(t, program, stdin, args...) }
	for _, c := range []struct {
		args  string
		fails bool
		want  string
		then  kubevirtv1.PrintableStatus
	}{
		{"version", false, `Server Version: version.Info{GitVersion:"v1.9.`, ""},
		{"start reached", true, "VM is already running", ""},
		{"pause vm reached", false, "was scheduled to pause", kubevirtv1.StatusPaused},
		{"pause vmi reached", true, "already paused", ""},
		{"unpause vmi reached", false, "was scheduled to unpause", kubevirtv1.StatusRunning},
		{"expand --vm reached", false, "kind: VirtualMachine", ""},
		{"reset reached", false, "was scheduled to reset", ""},
		{"evacuate-cancel vm reached", false, "canceled evacuation", ""},
		{"migrate reached", true, "vmlet does not support live migration", ""},
		{"memory-dump get reached --claim-name=x", true, "vmlet does not support memory dumps", ""},
		{"stop reached --force --grace-period=0 --dry-run", false, "was scheduled to stop", ""},
		{"restart reached --force --grace-period=0", false, "was scheduled to restart", ""},
		{"stop reached --force --grace-period=1", false, "was scheduled to stop", kubevirtv1.StatusStopped},
		{"stop reached", true, "VM is not running", ""},
		{"console nobody", true, "not found", ""},
		{"start reached --paused", false, "was scheduled to start", kubevirtv1.StatusPaused},
		{"unpause vm reached", false, "was scheduled to unpause", kubevirtv1.StatusRunning},
	} {
		out, err := run("", strings.Fields(c.args)...)
		if (err != nil) != c.fails || !strings.Contains(out, c.want) || strings.Contains(out, "differ") {
			t.Errorf("virtctl %s: %v, %s, want %q", c.args, err, out, c.want)
		}
		if c.then != "" {
			v.printed(t, "reached", c.then)
		}
	}
	var out string
	v.eventually(t, func() bool {
		out, _ = run("GET / HTTP/1.0\r\n\r\n", "port-forward", "--stdio=true", "vmi/reached", "80")
		return strings.Contains(out, "hello over port 80")
	}, func() string { return "port 80 of the guest answers " + out })
	v.remove(t, machine(t, "reached", "", idle))
	v.noMachine(t, "reached")
}

func (v *installed) virtctl(t *testing.T, program, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(args, "--namespace="+guests, "--kubeconfig="+v.Kubeconfig())...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	input, err := cmd.StdinPipe() // open until virtctl ends: at its end it would leave
	must(t, err)
	must(t, cmd.Start())
	_, _ = io.WriteString(input, stdin) // fails if it has ended
	err = cmd.Wait()
	t.Logf("virtctl %s: %v\n%s", strings.Join(args, " "), err, &out)
	return out.String(), err
}

// virtctlSays: so does virtctl with what the guest's agent says, where there is one.
func (v *installed) virtctlSays(t *testing.T) {
	program := os.Getenv("VMLET_VIRTCTL")
	if program == "" {
		return
	}
	picture := filepath.Join(t.TempDir(), "picture.png")
	for args, want := range map[string]string{
		"guestosinfo agent": "Small Linux", "userlist agent": `"items"`, "fslist agent": `"mountPoint": "/"`,
		"vnc screenshot agent -f " + picture: "",
	} {
		if out, err := v.virtctl(t, program, "", strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("virtctl %s: %v, %s, want %q", args, err, out, want)
		}
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
		t.Errorf("virtctl's picture: %v, %d bytes", err, len(b))
	}
	if out, err := v.virtctl(t, program, "", "soft-reboot", "agent"); err != nil {
		t.Errorf("virtctl soft-reboot: %v, %s", err, out)
	}
}
