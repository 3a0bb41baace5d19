package systemd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
)

// module is the prefix of vmlet's packages.
const module = "github.com/vmlet/vmlet/"

// ids for the VMs of the agent on this machine, which other tests' agents don't use.
const firstUID = 2_100_020_000

// bootDebian boots the guest with all that it is to be handed and returns its console.
func bootDebian(t *testing.T) <-chan string {
	t.Helper()
	base, err := guest.CloudDisk(t.Context())
	skipIfMissing(t, err)
	kernel, initrd, err := guest.Linux(t.Context())
	skipIfMissing(t, err)
	// Not t.TempDir: a socket's path is to fit into its address.
	dir, err := os.MkdirTemp("", "systemd-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o711))

	handIn(t, filepath.Join(dir, "tree"))
	overlay, handedIn, storage := filepath.Join(dir, "root.qcow2"), filepath.Join(dir, "handed-in.raw"), filepath.Join(dir, "storage.raw")
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay)
	run(t, "mke2fs", "-q", "-t", "ext4", "-L", "handed-in", "-d", filepath.Join(dir, "tree"), handedIn, "1G")
	run(t, "mke2fs", "-q", "-t", "ext4", "-L", "storage", storage, "64M")

	vmlet := startAgent(t, dir, filepath.Join(dir, "tree", "first", "bin", "vmlet"))
	run(t, vmlet, "run", "debian", "--detach", "--hypervisor", "emulation", "--cpus", "2", "--memory", "1536Mi",
		"--kernel", kernel, "--initrd", initrd, "--cmdline", cmdline,
		"--disk", overlay+",format=qcow2,cache=unsafe,backing=qcow2:"+base, "--disk", handedIn+",readonly", "--disk", storage)
	t.Cleanup(func() {
		run(t, vmlet, "kill", "debian")
		run(t, vmlet, "delete", "debian")
	})
	logs := exec.CommandContext(t.Context(), vmlet, "logs", "--follow", "debian")
	console, err := logs.StdoutPipe()
	must(t, err)
	must(t, logs.Start())
	return scan(console)
}

// handIn makes the folder that the guest gets as a disk.
func handIn(t *testing.T, tree string) {
	t.Helper()
	for _, version := range []string{"first", "second"} {
		build(t, filepath.Join(tree, version, "bin")+"/", "build", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version="+version,
			module+"cmd/vmlet", module+"cmd/vmlet-agent", module+"cmd/vmlet-shim")
	}
	must(t, os.CopyFS(filepath.Join(tree, "first", "deploy", "systemd"), os.DirFS("../../deploy/systemd")))
	for name, o := range map[string]guest.PVHOptions{"counts": {}, "obeys": {}, "ignores": {IgnorePowerButton: true}} {
		elf, err := guest.PVH(o)
		must(t, err)
		put(t, filepath.Join(tree, "guests", name), string(elf))
	}
	// Flags leave out what the guest has no devices for.
	for name, flags := range map[string]string{
		"agent/host":              "-test.skip='Tap$|^TestEndProcessesThatHang$'",
		"agent/pods":              "",
		"agent/usage":             "",
		"hypervisor/housekeeping": "-test.run='^TestApplyCgroupReal$/^sys-fs-cgroup$'",
	} {
		handInTests(t, filepath.Join(tree, "packages", strings.ReplaceAll(name, "/", "-")), name, flags)
	}
	if everything.Wanted() {
		put(t, filepath.Join(tree, "everything"), "")
	}
	build(t, filepath.Join(tree, "inside.test"), "test", "-c", "-ldflags", "-s -w", module+"test/systemd/inside")
	script, err := os.ReadFile("run")
	must(t, err)
	put(t, filepath.Join(tree, "run"), string(script))
}

// handInTests makes a folder with a package's tests, and a script that runs them there.
func handInTests(t *testing.T, folder, name, flags string) {
	t.Helper()
	build(t, filepath.Join(folder, "test"), "test", "-c", "-ldflags", "-s -w", module+name)
	put(t, filepath.Join(folder, "run"), "#!/bin/sh\nexport TMPDIR=/var/tmp # with extended attributes, unlike Debian 13's /tmp\nexec ./test -test.v -test.timeout=0 "+flags+"\n")
	if data := filepath.Join("../..", name, "testdata"); exists(data) {
		must(t, os.CopyFS(filepath.Join(folder, "testdata"), os.DirFS(data)))
	}
}

// startAgent starts an agent below dir and returns a program that is its client.
func startAgent(t *testing.T, dir, vmlet string) string {
	t.Helper()
	socket := filepath.Join(dir, "vmlet.sock")
	put(t, filepath.Join(dir, "config.yaml"), fmt.Sprintf("stateDir: %s/state\nrunDir: %[1]s/run\nsocket: %s\nusers: {first: %d, count: 10}\n", dir, socket, firstUID))
	agent := exec.Command(vmlet+"-agent", "--config", filepath.Join(dir, "config.yaml"))
	log, err := os.Create(filepath.Join(dir, "agent.log"))
	must(t, err)
	agent.Stderr = log
	must(t, agent.Start())
	ended := make(chan struct{})
	go func() {
		_ = agent.Wait() // looked at by its ProcessState
		close(ended)
	}()
	t.Cleanup(func() {
		_ = agent.Process.Signal(unix.SIGTERM) // it may have ended
		<-ended
		if t.Failed() || !agent.ProcessState.Success() { // the log has what kept the guest from going on
			text, _ := os.ReadFile(log.Name())
			t.Errorf("the agent on this machine ended with %v; its log:\n%s", agent.ProcessState, text)
		}
	})
	client := filepath.Join(dir, "vmlet")
	put(t, client, fmt.Sprintf("#!/bin/sh\nexec %s --socket %s \"$@\"\n", vmlet, socket))
	for exec.Command(client, "list").Run() != nil {
		select {
		case <-ended:
			t.Fatal("the agent has ended")
		default:
		}
	}
	return client
}

func build(t *testing.T, output, command string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{command, "-trimpath", "-buildvcs=false", "-o", output}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// put writes a file that can be run.
func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o755))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func skipIfMissing(t *testing.T, err error) {
	t.Helper()
	if missing := new(guest.MissingError); errors.As(err, &missing) {
		t.Skip(missing)
	}
	must(t, err)
}
