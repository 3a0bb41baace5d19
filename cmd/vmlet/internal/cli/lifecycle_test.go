package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestLifecycleCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   string
		calls  []string
		stdout string
	}{
		{"start off off2", []string{`StartVM name:"off"`, `StartVM name:"off2"`}, "off started\noff2 started\n"},
		{"start --cold --paused off", []string{`StartVM name:"off" cold:true paused:true`}, "off started\n"},
		{"stop web", []string{`StopVM name:"web"`}, "web stopped\n"},
		{"stop --grace 1m30s web", []string{`StopVM name:"web" grace_period_ms:90000`}, "web stopped\n"},
		{"stop --grace 0 web", []string{`StopVM name:"web" grace_period_ms:0`}, "web stopped\n"},
		{"stop off2", []string{`StopVM name:"off2"`}, "off2 is created: nothing of it ran\n"},
		{"kill web", []string{`KillVM name:"web"`}, "web killed\n"},
		{"pause web", []string{`PauseVM name:"web"`}, "web paused\n"},
		{"resume halted", []string{`ResumeVM name:"halted"`}, "halted resumed\n"},
		{"reset web", []string{`ResetVM name:"web"`}, "web reset\n"},
		{"resize web --vcpus 4", []string{`ResizeVM name:"web" vcpus:4`}, "web resized\n"},
		{"resize web --memory 256Mi", []string{`ResizeVM name:"web" memory:"256Mi"`}, "web resized; the guest has 300 MiB of memory still: while it runs it gives back what it can spare, by its balloon driver (virtio_balloon); the same command again says how far it is\n"},
		{"resize web --memory 300Mi", []string{`ResizeVM name:"web" memory:"300Mi"`}, "web resized; the guest has 300 MiB of memory now\n"},
		{"resize off --vcpus 2 --memory 1Gi", []string{`ResizeVM name:"off" vcpus:2 memory:"1Gi"`}, "off resized, from its next start on\n"},
		{"attach disk web d.img", []string{`Attach name:"web" disk:{path:"` + dir + `/d.img"}`}, "default attached to web\n"},
		{"attach disk off /d --name data --format qcow2 --bus scsi --read-only --cache unsafe --serial S1 --backing qcow2:m --backing raw:/b",
			[]string{`Attach name:"off" disk:{name:"data" path:"/d" format:"qcow2" bus:"scsi" read_only:true serial:"S1" cache:"unsafe" backing_files:{path:"` + dir + `/m" format:"qcow2"} backing_files:{path:"/b" format:"raw"}}`},
			"data attached to off, from its next start on\n"},
		{"attach network web --tap-bridge br0 --name lan --mac 52:54:00:00:00:01 --model e1000e",
			[]string{`Attach name:"web" network:{name:"lan" mac:"52:54:00:00:00:01" model:"e1000e" tap:{bridge:"br0"}}`}, "lan attached to web\n"},
		{"attach network web --tap-device t0", []string{`Attach name:"web" network:{tap:{device:"t0"}}`}, "default attached to web\n"},
		{"attach network web --user", []string{`Attach name:"web" network:{user:{}}`}, "default attached to web\n"},
		{"detach web data", []string{`Detach name:"web" device:"data"`}, "data detached from web\n"},
		{"detach off data", []string{`Detach name:"off" device:"data"`}, "data detached from off, from its next start on\n"},
		{"delete off", []string{`DeleteVM name:"off"`}, "off deleted\n"},
		{"delete --force web", []string{`KillVM name:"web"`, `DeleteVM name:"web"`}, "web deleted\n"},
		{"rm --force off", []string{`KillVM name:"off"`, `DeleteVM name:"off"`}, "off deleted\n"},
		{"save web img", []string{`SaveVM name:"web" directory:"` + dir + `/img"`},
			"web saved to " + dir + "/img (100 MiB of memory, 300 KiB of state)\n"},
		{"save --keep-running web /img", []string{`SaveVM name:"web" directory:"/img" keep_running:true`},
			"web saved to /img (100 MiB of memory, 300 KiB of state; the guest was paused for 1.2s)\n"},
		{"restore img", []string{`RestoreVM directory:"` + dir + `/img"`}, "from-image restored from " + dir + "/img (running)\n"},
		{"restore /img --name n --lazy --paused --allow-changed-disks --new-identity",
			[]string{`RestoreVM directory:"/img" name:"n" lazy:true paused:true allow_changed_disks:true new_identity:true`},
			"n restored from /img (paused)\n"},
		{"logs --vmm --tail 2 web", []string{`ReadLogs name:"web" log:"vmm" tail_lines:2`}, "one\ntwo\n"},
		{"logs --shim -f web", []string{`ReadLogs name:"web" log:"shim" follow:true`}, ""},
		{"logs web", []string{`ReadLogs name:"web" log:"console"`}, "\x1b[1mraw"},
	} {
		t.Run(test.args, func(t *testing.T) {
			n := newFakeNode(t, machine("web", runs), machine("halted", isPaused), machine("off", stopped), machine("off2", created))
			n.logs = map[string]string{"vmm": "one\ntwo\n", "console": "\x1b[1mraw"}
			r := n.run(t, strings.Fields(test.args)...)
			if r.code != 0 || r.stderr != "" || r.stdout != test.stdout {
				t.Errorf("%+v, want %q", r, test.stdout)
			}
			if calls := n.takeCalls(); !reflect.DeepEqual(calls, test.calls) {
				t.Errorf("calls %q, want %q", calls, test.calls)
			}
		})
	}
}

func TestPlugUsage(t *testing.T) {
	n := newFakeNode(t, machine("web", runs))
	for args, word := range map[string]string{
		"resize web":                               "--vcpus or --memory",
		"resize web --vcpus 0":                     "one at least",
		"resize web --memory x":                    "--memory",
		"resize":                                   "resize NAME",
		"attach tape web":                          "unknown command",
		"attach disk web":                          "disk NAME PATH",
		"attach disk web /d --backing x":           "FORMAT:PATH",
		"attach network web":                       "--tap-bridge",
		"attach network web --user --tap-device t": "One of",
		"attach network web --tap-bridge b --tap-device t": "One of",
		"detach web": "detach NAME DEVICE",
	} {
		if r := n.run(t, strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.stderr, word) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if calls := n.takeCalls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

func TestGoesOnAfterAFailure(t *testing.T) {
	n := newFakeNode(t, machine("a", runs), machine("c", runs))
	r := n.run(t, "kill", "a", "b", "c")
	if r.code != exitNoVM || r.stdout != "a killed\nc killed\n" || !strings.Contains(r.stderr, `no vm "b"`) {
		t.Errorf("%+v", r)
	}
}

func TestStopSaysThatItKilled(t *testing.T) {
	n := newFakeNode(t, machine("a", runs))
	n.guestIgnoresButton = true
	if r := n.run(t, "stop", "a"); r.code != 0 || !strings.Contains(r.stdout, "a killed: the guest did not shut down") {
		t.Errorf("%+v", r)
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "vm.yaml")
	text := "name: a\nboot: {kernel: {path: k, initrd: /i}}\ndisks: [{path: d.img, backingFiles: [{path: ../b}]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	n := newFakeNode(t)
	r := n.runInput(t, `{"name": "b", "boot": {"kernel": {"path": "k"}}}`, "create", "-f", file, "-f", "-")
	if r.code != 0 || r.stdout != "a created\nb created\n" {
		t.Errorf("%+v", r)
	}
	want := []string{
		`CreateVM spec:{name:"a" boot:{kernel:{path:"` + dir + `/k" initrd:"/i"}} disks:{path:"` + dir + `/d.img" backing_files:{path:"` + filepath.Dir(dir) + `/b"}}}`,
		`CreateVM spec:{name:"b" boot:{kernel:{path:"` + cwd + `/k"}}}`,
	}
	if calls := n.takeCalls(); !reflect.DeepEqual(calls, want) {
		t.Errorf("calls\n%q want\n%q", calls, want)
	}
}

func TestCreateReadsAllFilesFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vm.yaml")
	if err := os.WriteFile(file, []byte("name: a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := newFakeNode(t)
	if r := n.runInput(t, "nmae: b", "create", "-f", file, "-f", "-"); r.code != exitFailed || !strings.Contains(r.stderr, "standard input:1") {
		t.Errorf("%+v", r)
	}
	if calls := n.takeCalls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

func TestInterruptedReadingOfStandardInput(t *testing.T) {
	n := newFakeNode(t)
	env, _, errOut := n.env("")
	r, w := io.Pipe()
	defer w.Close()
	env.Stdin = r
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if code := Main(ctx, env, []string{"create", "-f", "-"}); code != exitFailed || errOut.String() != "vmlet: interrupted\n" {
		t.Errorf("code %d, %s", code, errOut)
	}
}

// A pipe to which nobody writes is opened and read for ever.
func TestInterruptedReadingOfPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	n := newFakeNode(t)
	env, _, errOut := n.env("")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if code := Main(ctx, env, []string{"create", "-f", pipe}); code != exitFailed || errOut.String() != "vmlet: interrupted\n" {
		t.Errorf("code %d, %s", code, errOut)
	}
}

// An interruption says what is known of the machine then.
func TestInterruptedStartAndStop(t *testing.T) {
	for _, test := range []struct {
		command string
		machine *nodev1.VirtualMachine
		want    string
	}{
		{"start", machine("web", stopped), `vmlet: start of "web" interrupted: it is stopped`},
		{"stop", machine("web", runs), `vmlet: stop of "web" interrupted: if the guest was asked already, it goes on shutting down`},
	} {
		n := newFakeNode(t, test.machine)
		ctx, interrupt := context.WithCancel(t.Context())
		n.interrupted = interrupt
		env, out, errOut := n.env("")
		code := Main(ctx, env, []string{test.command, "web"})
		if code != exitFailed || out.String() != "" || !strings.HasPrefix(errOut.String(), test.want) {
			t.Errorf("code %d, stdout %q, stderr %q, want %q", code, out, errOut, test.want)
		}
	}
}

// An interrupted save is cancelled at the agent, and the client finds out what
// became of the guest.
func TestInterruptedSave(t *testing.T) {
	for _, test := range []struct {
		name    string
		tooLate bool
		want    string
	}{
		{"in time", false, `vmlet: save of "web" interrupted: nothing was saved, the guest goes on (running)`},
		{"too late", true, `vmlet: save of "web" interrupted too late: it is saved in /img`},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newFakeNode(t, machine("web", runs))
			ctx, interrupt := context.WithCancel(t.Context())
			n.save = func(ctx context.Context) error {
				interrupt()
				<-ctx.Done()
				if test.tooLate {
					n.mu.Lock()
					n.vms["web"].Status.Image = imageAt("/img")
					n.mu.Unlock()
					return nil
				}
				return status.FromContextError(ctx.Err()).Err()
			}
			env, out, errOut := n.env("")
			code := Main(ctx, env, []string{"save", "web", "/img"})
			if code != exitFailed || out.String() != "" || errOut.String() != test.want+"\n" {
				t.Errorf("code %d, stdout %q, stderr %q, want %q", code, out, errOut, test.want)
			}
		})
	}
}

func TestFailedStartLeavesNoMachine(t *testing.T) {
	n := newFakeNode(t)
	n.fail = map[string]error{"StartVM": status.Error(codes.InvalidArgument, "no kernel there")}
	r := n.run(t, "run", "a")
	if r.code != exitFailed || r.stderr != "vmlet: no kernel there\n" {
		t.Errorf("%+v", r)
	}
	if calls := n.takeCalls(); !slices.Contains(calls, `DeleteVM name:"a"`) {
		t.Errorf("calls %q", calls)
	}
	// One that was there before stays.
	n = newFakeNode(t, machine("a", stopped))
	n.fail = map[string]error{"StartVM": errors.New("no")}
	n.run(t, "run", "a")
	if calls := n.takeCalls(); slices.Contains(calls, `DeleteVM name:"a"`) {
		t.Errorf("calls %q", calls)
	}
}

func TestStartSaysThatTheHypervisorIsDegraded(t *testing.T) {
	for hypervisor, want := range map[string]string{
		"":          "",
		"emulation": "",
		"kvm":       "vmlet: off runs under kvm, which is degraded on this node, and may be slow or not boot: see vmlet probe\n",
	} {
		n := newFakeNode(t, machine("off", stopped))
		n.vms["off"].Status.Hypervisor = hypervisor
		if r := n.run(t, "start", "off"); r.code != 0 || r.stderr != want {
			t.Errorf("under %q: code %d, %q, want %q", hypervisor, r.code, r.stderr, want)
		}
	}
}
