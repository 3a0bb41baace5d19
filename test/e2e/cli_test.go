package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/guest"
)

// cli runs the client and returns what it printed.
func (n *node) cli(wantCode int, args ...string) (stdout, stderr string) {
	n.t.Helper()
	cmd := n.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != wantCode {
		n.t.Errorf("vmlet %q: exit code %d, want %d (%v)\n%s%s", args, got, wantCode, err, &out, &errs)
	}
	return out.String(), errs.String()
}

// prints sees that the client succeeds and prints something that matches.
func (n *node) prints(pattern string, args ...string) string {
	n.t.Helper()
	out, _ := n.cli(0, args...)
	if !regexp.MustCompile(pattern).MatchString(out) {
		n.t.Errorf("vmlet %q prints %q, want it to match %q", args, out, pattern)
	}
	return out
}

// fails sees that the client fails with a code and says why.
func (n *node) fails(code int, pattern string, args ...string) {
	n.t.Helper()
	_, err := n.cli(code, args...)
	if !regexp.MustCompile(pattern).MatchString(err) {
		n.t.Errorf("vmlet %q says %q, want it to match %q", args, err, pattern)
	}
}

// following is a client that goes on until it is interrupted.
type following struct {
	n     *node
	cmd   *exec.Cmd
	lines *journal[string]
	done  chan struct{}
}

func (n *node) follows(args ...string) *following {
	n.t.Helper()
	f := &following{n: n, cmd: n.command(args...), lines: newJournal[string](), done: make(chan struct{})}
	out, err := f.cmd.StdoutPipe()
	n.must(err)
	n.must(f.cmd.Start())
	go func() {
		defer close(f.done)
		for in := bufio.NewScanner(out); in.Scan(); {
			f.lines.add(strings.TrimRight(in.Text(), "\r"))
		}
	}()
	return f
}

func (f *following) expect(pattern string) {
	f.n.t.Helper()
	ctx, cancel := f.n.patient()
	defer cancel()
	if _, err := f.lines.next(ctx, 0, regexp.MustCompile(pattern).MatchString); err != nil {
		f.n.t.Errorf("%q does not print %q: %v; it printed %q", f.cmd.Args, pattern, err, f.lines.all())
	}
}

// interrupted ends it as Ctrl-C does.
func (f *following) interrupted() {
	f.n.t.Helper()
	f.n.must(f.cmd.Process.Signal(unix.SIGINT))
	<-f.done
	if err := f.cmd.Wait(); err != nil {
		f.n.t.Errorf("%q ended with %v after it was interrupted", f.cmd.Args, err)
	}
}

// TestClient goes through a VM's life with the command-line client.
func TestClient(t *testing.T) {
	n := newNode(t, nodeOptions{})
	kernel := pvh(t, "x", "emulation", guest.PVHOptions{}).GetBoot().GetKernel().GetPath()
	image := filepath.Join(t.TempDir(), "image")
	run := []string{"run", "web-1", "--kernel", kernel, "--hypervisor", "emulation", "--memory", "64Mi", "--cpus", "1", "--net", "user", "--label", "app=web"}

	n.prints(`(?s)Client: .*Agent: `, "version")
	n.prints(`emulation +works`, "node")
	n.prints(`^web-1 started\n$`, append(run, "--detach")...)
	events := n.follows("events", "-f", "web-1", "-o", "json")
	logs := n.follows("logs", "-f", "web-1")
	logs.expect("^count 3$")
	n.prints(`(?m)^web-1 +running`, "list")
	n.prints(`^web-1\n$`, "ps", "-o", "name", "-l", "app=web")
	n.prints(`^$`, "ps", "-o", "name", "-l", "app!=web")
	n.listsAsJSON("web-1", "STATE_RUNNING")
	n.prints(`(?m)^ +state: STATE_RUNNING$`, "get", "web-1")
	n.prints(`paused`, "pause", "web-1")
	n.prints(`resumed`, "resume", "web-1")
	n.prints(`reset`, "reset", "web-1")
	events.expect(`"type":\s*"RESET"`)
	n.prints(`(?m)^count \d+\r?$`, "logs", "--tail", "2", "web-1")

	n.prints(`^web-1 saved to `+image+` \(.* of memory, .* of state\)\n$`, "save", "web-1", image)
	events.expect(`STATE_SAVED`)
	n.prints(`(?s)Machine: +web-1.*Accelerator: +emulation`, "image", "inspect", image)
	n.prints(`"layout": "raw"`, "image", "inspect", image, "-o", "json")
	n.prints(`is whole`, "image", "verify", image)
	n.prints(`^web-1 restored from `+image, "restore", image)
	n.prints(`^web-2 restored from .*paused`, "restore", image, "--name", "web-2", "--new-identity", "--paused")
	n.prints(`stopped`, "stop", "web-1")
	n.prints(`killed`, "kill", "web-2")
	n.prints(`(?s)web-1 deleted.*web-2 deleted`, "delete", "web-1", "web-2")
	events.expect(`"type":\s*"deleted"`)
	events.interrupted()
	logs.interrupted()

	flip(t, filepath.Join(image, "state"), 100)
	n.fails(1, image+"/state: damaged", "image", "verify", image)
	n.fails(1, image+"/state: damaged", "restore", image)
	n.fails(1, `disks\[0\]\.path.*/none`, "run", "bad", "--kernel", kernel, "--disk", "/none", "--detach")
	n.fails(2, "--memory", "run", "bad", "--kernel", kernel, "--memory", "lots", "--detach")
	n.fails(2, "Usage|usage|--help", "run")
	n.fails(2, "--rm", append(run, "--detach", "--rm")...)
	n.fails(2, "unknown flag", "list", "--frob")
	n.fails(3, `no vm named "nobody"`, "start", "nobody")
	n.fails(4, "start one with: vmlet agent", "--socket", n.path("none.sock"), "list")
	n.prints(`^$`, "list", "-o", "name")
}

func (n *node) listsAsJSON(name, state string) {
	n.t.Helper()
	var list struct {
		VMs []struct {
			Spec   struct{ Name string }
			Status struct{ State string }
		}
	}
	out, _ := n.cli(0, "ps", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.VMs) != 1 || list.VMs[0].Spec.Name != name || list.VMs[0].Status.State != state {
		n.t.Errorf("ps -o json prints %s, %v; want %s, %s", out, err, name, state)
	}
}

// TestRunInTheForeground has a client that shows the console until the machine
// ends, and then forgets it.
func TestRunInTheForeground(t *testing.T) {
	n := newNode(t, nodeOptions{})
	kernel := pvh(t, "x", "emulation", guest.PVHOptions{}).GetBoot().GetKernel().GetPath()
	cmd := n.command("run", "tiny", "--kernel", kernel, "--hypervisor", "emulation", "--memory", "64Mi", "--rm")
	keys, err := cmd.StdinPipe()
	n.must(err)
	out, err := cmd.StdoutPipe()
	n.must(err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	n.must(cmd.Start())
	counted := false
	for in := bufio.NewScanner(out); in.Scan(); {
		if !counted && strings.HasPrefix(in.Text(), guest.CountPrefix) {
			counted = true
			_, err := keys.Write([]byte{guest.KeyPowerOff})
			n.must(err)
		}
	}
	if err := cmd.Wait(); err != nil || !counted {
		t.Errorf("run ended with %v, a count was seen: %v; it said %s", err, counted, &errs)
	}
	n.prints(`^$`, "list", "-o", "name")
}
