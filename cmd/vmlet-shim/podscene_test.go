package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/printed"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// podScene is a container: a shim in a pod's volume, run by a user who may do
// nothing, and what it says.
type podScene struct {
	faults []contract.Fault // of the last words, once it has ended
	*scene
	vmm            podVMM
	uid            uint32
	volume         string
	specification  string
	vmlet          string
	terminationLog string
	cmd            *exec.Cmd
	stdout, stderr printed.Text
	ended          chan struct{}
}

// podVMM is one of a pod's image.
type podVMM struct {
	name    string
	plan    func(*podScene) *plan.Plan
	restore func(p *podScene, dir string, lazy bool) *plan.Plan
	lazy    bool     // it can restore so
	badArgs []string // with them it ends at once, and says "nonesuch"
}

// podUser is nobody else's in a test.
const podUser = 954322

// forEachPodVMM runs a test with all that a pod's image may have.
func forEachPodVMM(t *testing.T, test func(*testing.T, podVMM)) {
	t.Run("qemu", func(t *testing.T) { test(t, podQEMU(t)) })
	t.Run("cloud-hypervisor", func(t *testing.T) { test(t, podCloudHypervisor(t)) })
}

func podQEMU(t *testing.T) podVMM {
	q := anyQEMU(t)
	q.ten = hasROM(t, q.binary)
	return podVMM{
		name: "qemu", plan: func(p *podScene) *plan.Plan { return p.scene.plan(q) },
		restore: func(p *podScene, dir string, lazy bool) *plan.Plan { return p.scene.restorePlan(q, dir, lazy) },
		lazy:    q.ten, badArgs: []string{"-device", "nonesuch"},
	}
}

// podCloudHypervisor is the program or its stand-in. A node's agent gives the pod's
// user access to KVM.
func podCloudHypervisor(t *testing.T) podVMM {
	program := cloudHypervisor(t)
	if _, err := os.Stat("/dev/kvm"); err == nil && os.Geteuid() == 0 {
		err := posixacl.Grant("/dev/kvm", podUser, posixacl.Read|posixacl.Write)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := posixacl.Revoke("/dev/kvm", podUser); err != nil {
				t.Error(err)
			}
		})
	}
	return podVMM{
		name: wire.Name, plan: func(p *podScene) *plan.Plan { return p.cloudPlan(program) },
		restore: func(p *podScene, dir string, lazy bool) *plan.Plan {
			return p.cloudRestore(p.cloudPlan(program), dir, lazy)
		},
		lazy: true, badArgs: []string{"--nonesuch"},
	}
}

const earlierWords = "an earlier run's, which was longer than this one's will be, by far: so that what is left of it would be seen"

const podText = "boot: {kernel: {path: /guest/kernel}}\n"

func newPodScene(t *testing.T) *podScene {
	t.Helper()
	p := &podScene{scene: newScene(t), uid: uint32(os.Getuid())}
	if p.uid == 0 {
		p.uid = podUser
	}
	// newScene's RAM is on a tmpfs already.
	shared := filepath.Dir(p.ram)
	p.volume = filepath.Join(shared, "volume")
	p.check(os.Mkdir(p.volume, 0o700))
	for _, dir := range []string{shared, filepath.Dir(p.root)} {
		p.check(os.Chmod(dir, 0o711))
	}
	p.run, p.state, p.ram = p.volume, p.volume, filepath.Join(p.volume, shim.RAMName)
	p.specification = filepath.Join(p.root, "vm.yaml")
	p.check(os.WriteFile(p.specification, []byte(podText), 0o600))
	p.terminationLog = filepath.Join(p.root, "termination-log")
	p.check(os.WriteFile(p.terminationLog, []byte(earlierWords), 0o600))
	p.vmlet = filepath.Join(p.root, "vmlet")
	p.says(`echo '[{"name":"qemu","said":"this"}]'`)
	p.give(p.root, p.volume, p.specification, p.terminationLog, p.vmlet, p.kernel)
	return p
}

// scene is one with this VMM.
func (v podVMM) scene(t *testing.T) *podScene {
	t.Helper()
	p := newPodScene(t)
	p.vmm = v
	return p
}

// give makes files the container's user's.
func (p *podScene) give(paths ...string) {
	p.t.Helper()
	for _, path := range paths {
		p.check(os.Lchown(path, int(p.uid), -1))
	}
}

// says makes the vmlet that is asked what the VMMs can do.
func (p *podScene) says(script string) {
	p.t.Helper()
	p.check(os.WriteFile(p.vmlet, []byte("#!/bin/sh\ntest \"$*\" = 'probe --vmms' || exit 9\n"+script+"\n"), 0o700))
}

// command is the container's program, as its user.
func (p *podScene) command(more ...string) *exec.Cmd {
	args := append([]string{podMode, "--volume", p.volume, "--vmlet", p.vmlet, "--termination-log", p.terminationLog}, more...)
	cmd := exec.Command(shimBinary, args...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.uid}}
	}
	return cmd
}

// container starts the container's program; more are its last arguments, in place of the specification.
func (p *podScene) container(more ...string) {
	p.t.Helper()
	if len(more) == 0 {
		more = []string{p.specification}
	}
	p.cmd = p.command(more...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.check(p.cmd.Start())
	p.shimPID = p.cmd.Process.Pid
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() {
		_ = cmd.Wait() // its state tells the same
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has mostly ended
		<-ended
		if p.t.Failed() {
			p.t.Logf("the shim said: %s", p.stderr.String())
			words, _ := os.ReadFile(filepath.Join(p.volume, shim.VMMLogName))
			p.t.Logf("the VMM said: %s", words)
		}
	})
}

// connect is an agent's coming; the shim announces itself.
func (p *podScene) connect() {
	p.t.Helper()
	p.waitFor(func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("it has ended: %s", p.stderr.String())
		default:
		}
		client, err := shim.Dial(p.ctx, p.volume)
		if err != nil {
			return false
		}
		p.client = client
		p.t.Cleanup(func() { client.Close() })
		return true
	})
}

// boot launches the PVH guest with what a node's agent would send.
func (p *podScene) boot(change func(*shim.Launch)) {
	p.t.Helper()
	l := shim.Launch{Keep: json.RawMessage(`{"kept":"this"}`), Grace: new(time.Minute)}
	if change != nil {
		change(&l)
	}
	if l.Plan == nil {
		l.Plan = p.vmm.plan(p)
	}
	l.Plan.User = nil // in a pod all is the container's user's
	launched, err := p.client.Launch(p.ctx, l, nil, nil)
	p.check(err)
	p.vmmPID = launched.VMMPID
}

// savedWords begin wantExit's words of a VM that was saved; its image's identifier and directory follow.
const savedWords = "saved "

// refusal is what an agent says of a VM that it can't run.
func refusal(text string) *contract.Ending { return &contract.Ending{Message: text} }

// save returns what the container's last words are if it ends by it.
func (p *podScene) save(dir string, keep bool) (words string) {
	p.t.Helper()
	prepared, err := p.client.Save(p.ctx, shim.Save{Directory: dir, Manifest: memory.Manifest{VMM: memory.VMM{Name: p.vmm.name, Version: "test"}}}, nil, nil)
	p.check(err)
	_, err = p.client.Commit(p.ctx, shim.Commit{KeepRunning: keep})
	p.check(err)
	return savedWords + prepared.ImageID + " " + dir
}

// wantExit waits for the container's end and looks at what the kubelet would see. It
// returns the last words.
func (p *podScene) wantExit(code int, said ...string) string {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-p.ctx.Done():
		p.t.Fatal("it does not end")
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	last, err := os.ReadFile(p.terminationLog)
	p.check(err)
	e := contract.ReadEnding(string(last))
	if well := []string{contract.GuestShutdown, contract.GuestUnstarted}; code == 0 && len(said) == 0 && string(last) != earlierWords && !slices.Contains(well, e.Reason) {
		p.t.Errorf("last words of one that ended well: %q", last)
	}
	p.faults = e.Faults
	words := e.Sentence()
	if e.Reason == contract.GuestSaved {
		words = savedWords + e.Image + " " + e.Directory
	}
	for _, want := range said {
		if !strings.Contains(words, want) {
			p.t.Errorf("last words %q do not have %q", last, want)
		}
	}
	p.check(os.WriteFile(p.terminationLog, []byte(earlierWords), 0o600))
	for _, name := range []string{shim.SocketName, shim.PIDName, shim.RAMName, "qmp.sock", wire.APISocket, wire.EventsSocket, shim.VMMFolderName} {
		if _, err := os.Lstat(filepath.Join(p.volume, name)); !errors.Is(err, os.ErrNotExist) {
			p.t.Errorf("%s is left: %v", name, err)
		}
	}
	return words
}
