package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/launch"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/printed"
)

// preparedPod is a pod whose VM has disks to be made, some of them from other containers.
type preparedPod struct {
	*podScene
	made, sockets string
}

func newPreparedPod(p *podScene) *preparedPod {
	p.t.Helper()
	// A socket's path is short, and the folder of a test need not be.
	sockets, err := os.MkdirTemp("", "s")
	p.check(err)
	p.t.Cleanup(func() { os.RemoveAll(sockets) })
	q := &preparedPod{podScene: p, made: filepath.Join(p.root, "made"), sockets: sockets}
	p.check(os.Mkdir(q.made, 0o700))
	p.give(q.made, sockets)
	return q
}

// prepared starts the VM's container with this specification and what is to be made.
func (p *preparedPod) prepared(specification string, disks ...launch.Disk) {
	p.t.Helper()
	preparation := filepath.Join(p.root, contract.PreparationFile)
	text, err := json.Marshal(launch.Preparation{Disks: disks})
	p.check(err)
	p.check(os.WriteFile(preparation, text, 0o644))
	p.check(os.WriteFile(p.specification, []byte(specification), 0o644))
	p.container("--preparation", preparation, "--made", p.made, "--sockets", p.sockets, p.specification)
}

// imageContainer is a container of somebody's image, of the pod's user without any right:
// all that it sees is the image, the sockets and the program that another has copied there.
func (p *preparedPod) imageContainer(socket string, files map[string][]byte, args ...string) (socketPath string, said *printed.Text, stop func()) {
	p.t.Helper()
	if os.Geteuid() != 0 {
		p.t.Skip("needs root, to be in another root folder")
	}
	root := p.t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		p.check(os.MkdirAll(filepath.Dir(path), 0o755))
		p.check(os.WriteFile(path, content, 0o444))
	}
	sockets := filepath.Join(root, contract.SocketsFolder)
	p.check(os.MkdirAll(sockets, 0o755))
	p.check(unix.Mount(p.sockets, sockets, "", unix.MS_BIND, ""))
	p.t.Cleanup(func() { p.check(unix.Unmount(sockets, unix.MNT_DETACH)) })
	program := filepath.Join(root, contract.ProgramsFolder, "vmlet-shim")
	p.check(os.MkdirAll(filepath.Dir(program), 0o755))
	if out, err := exec.Command(shimBinary, "copy", program).CombinedOutput(); err != nil {
		p.t.Fatalf("copy: %v: %s", err, out)
	}
	cmd := exec.Command(strings.TrimPrefix(program, root), append([]string{"disk", "--socket", filepath.Join(contract.SocketsFolder, socket)}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: unix.CLONE_NEWNS, Credential: &syscall.Credential{Uid: p.uid, Gid: p.uid}}
	said = new(printed.Text)
	cmd.Stderr = said
	p.check(cmd.Start())
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		p.check(cmd.Process.Signal(unix.SIGTERM))
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("asked to end: %v: %s", err, said.String())
		}
	}
	p.t.Cleanup(stop)
	return filepath.Join(p.sockets, socket), said, stop
}

func (p *preparedPod) qcow2() []byte {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "disk")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", path, "8M").CombinedOutput(); err != nil {
		p.t.Skipf("qemu-img: %v: %s", err, out)
	}
	content, err := os.ReadFile(path)
	p.check(err)
	return content
}

// TestPodWithContainerDisk: kernel and disk are in images of other containers, of which one
// has ended by the time that the guest runs; the guest's writes go to an overlay.
func TestPodWithContainerDisk(t *testing.T) {
	p := newPreparedPod(podQEMU(t).scene(t))
	kernel, err := os.ReadFile(p.kernel)
	p.check(err)
	kernelSocket, _, _ := p.imageContainer("boot.kernel.sock", map[string][]byte{"boot/vmlinuz": kernel}, "--path", "/boot/vmlinuz")
	diskSocket, said, stop := p.imageContainer("root.sock", map[string][]byte{"disk/any-name.img": p.qcow2()})
	p.prepared(`{"boot":{"kernel":{"path":"`+kernelSocket+`"}},"disks":[{"name":"root","bus":"virtio"}]}`,
		launch.Disk{Name: "root", Overlay: &launch.Overlay{Base: diskSocket, Image: "quay.io/test/disk"}})
	p.connect()
	d, err := p.client.Describe(p.ctx, shim.Describe{})
	p.check(err)
	overlay := filepath.Join(p.made, "root.qcow2")
	var got struct{ Disks []any }
	p.check(json.Unmarshal(d.Specification, &got))
	want := []any{map[string]any{
		"name": "root", "bus": "virtio", "path": overlay, "format": "qcow2", "backingFiles": []any{map[string]any{"path": diskSocket, "format": "qcow2"}},
	}}
	if !reflect.DeepEqual(got.Disks, want) {
		t.Errorf("the specification's disks are %v, want %v", got.Disks, want)
	}
	p.boot(func(l *shim.Launch) {
		l.Plan = p.vmm.plan(p.podScene)
		l.Plan.Files[3].Path = kernelSocket
		withContainerDisk(l.Plan, overlay, diskSocket)
	})
	stop()
	p.waitFor(func() bool { return strings.Contains(p.stdout.String(), guest.UpLine) })
	if answer := string(p.monitor("query-block")); !strings.Contains(answer, "/dev/fdset/2") || !strings.Contains(answer, `"backing_file_depth": 1`) {
		t.Errorf("the VMM's disks: %s", answer)
	}
	if text := said.String(); !strings.Contains(text, "handing out /disk/any-name.img") {
		t.Errorf("the image's container says %q", text)
	}
	_, err = p.client.Kill(p.ctx)
	p.check(err)
	p.client.Close()
	p.wantExit(0)
}

// withContainerDisk adds a disk as the planner does: overlay and base by descriptors.
func withContainerDisk(p *plan.Plan, overlay, base string) {
	image := disk.Image{Path: base, Format: disk.QCOW2}
	p.Files = append(p.Files,
		plan.File{
			Kind: plan.FilePath, Field: "disks[0].backingFiles[0].path", Path: base, Direct: true, PartOf: "root", Layer: 1,
			Disk: &disk.Expectation{Field: "disks[0].backingFiles[0].path", Image: image},
		},
		plan.File{
			Kind: plan.FilePath, Field: "disks[0].path", Path: overlay, Direct: true, Write: true, DiskName: "root",
			Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: overlay, Format: disk.QCOW2}, Backing: []disk.Image{image}},
		})
	p.Args = append(p.Args, "-add-fd", "fd=8,set=1", "-add-fd", "fd=9,set=2",
		"-blockdev", "driver=file,filename=/dev/fdset/1,node-name=basefile,cache.direct=on,read-only=on",
		"-blockdev", "driver=qcow2,file=basefile,node-name=base,read-only=on",
		"-blockdev", "driver=file,filename=/dev/fdset/2,node-name=file,cache.direct=on",
		"-blockdev", "driver=qcow2,file=file,node-name=root,backing=base", "-device", "virtio-blk-device,drive=root")
}

// TestPodDiskFaults: the container's last words are a sentence for the pod's owner.
func TestPodDiskFaults(t *testing.T) {
	t.Run("no disk in the image", func(t *testing.T) {
		p := newPreparedPod(newPodScene(t))
		socket, said, _ := p.imageContainer("root.sock", map[string][]byte{"etc/os-release": nil, "usr/bin/nginx": nil})
		p.prepared(`{"disks":[{"name":"root"}]}`, launch.Disk{Name: "root", Overlay: &launch.Overlay{Base: socket, Image: "docker.io/nginx"}})
		const want = "image docker.io/nginx has no single disk file under /disk; found: etc, usr, var"
		if last := p.wantExit(exitFailed, want); last != want {
			t.Errorf("last words %q", last)
		}
		if !strings.Contains(said.String(), "this image has no single disk file") {
			t.Errorf("its container says %q", said.String())
		}
	})
	t.Run("claims and files", func(t *testing.T) {
		p := newPreparedPod(newPodScene(t))
		p.prepared(`{"disks":[{"name":"data"},{"name":"app"}]}`,
			launch.Disk{Name: "data", Overlay: &launch.Overlay{Base: "/nonesuch/disk.img"}},
			launch.Disk{Name: "app", Files: &launch.Files{Folder: "/nonesuch", Label: "cfgdata"}})
		last := p.wantExit(exitFailed, "volume data: it has no disk.img", "volume app: open /nonesuch")
		want := []contract.Fault{
			{Object: contract.DisksFolder + "/data", Text: "it has no disk.img, and must have an image of that name: import one into it"},
			{Object: "/nonesuch", Text: "volume app: open /nonesuch: no such file or directory"},
		}
		if got := p.faults; !reflect.DeepEqual(got, want) {
			t.Errorf("in parts: %+v, want %+v; %s", got, want, last)
		}
	})
	t.Run("no JSON", func(t *testing.T) {
		p := newPreparedPod(newPodScene(t))
		p.prepared("boot: {}\n")
		p.wantExit(exitFailed, "the specification is not JSON")
	})
}

// TestPodEndsWhilePreparing: a pod that is deleted doesn't wait for other containers.
func TestPodEndsWhilePreparing(t *testing.T) {
	p := newPreparedPod(newPodScene(t))
	p.prepared(`{"disks":[{"name":"root"}]}`, launch.Disk{Name: "root", Overlay: &launch.Overlay{Base: filepath.Join(p.sockets, "never.sock")}})
	p.waitFor(p.hasChild)
	p.check(p.cmd.Process.Signal(unix.SIGTERM))
	p.wantExit(0)
}

// hasChild says whether a thread of the container's program has started another.
func (p *podScene) hasChild() bool {
	threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "task", "*", "children"))
	return slices.ContainsFunc(threads, func(path string) bool {
		children, _ := os.ReadFile(path) // a thread may end
		return len(bytes.TrimSpace(children)) > 0
	})
}

// TestPodSeed: what the guest's cloud-init reads is in the pod's own folder, and for nobody
// else to read.
func TestPodSeed(t *testing.T) {
	p := newPreparedPod(newPodScene(t))
	p.prepared(`{"disks":[{"name":"seed"},{"name":"scratch"}]}`,
		launch.Disk{Name: "seed", CloudInit: &launch.CloudInit{UserData: "#cloud-config\n", InstanceID: "i", Hostname: "h"}},
		launch.Disk{Name: "scratch", Raw: &launch.Raw{Size: 64 << 20}})
	p.connect()
	for name, size := range map[string]int64{"seed.iso": 0, "scratch.img": 64 << 20, contract.SpecificationFile: 0} {
		st, err := os.Stat(filepath.Join(p.made, name))
		if err != nil || st.Mode().Perm()&0o007 != 0 || size > 0 && st.Size() != size {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	p.client.Close()
	p.check(p.cmd.Process.Signal(unix.SIGTERM))
	p.wantExit(0)
}

// TestPodHasNoGrace: a specification that gives its guest no time has it ended at once,
// whatever the pod gives.
func TestPodHasNoGrace(t *testing.T) { forEachPodVMM(t, testPodHasNoGrace) }

func testPodHasNoGrace(t *testing.T, v podVMM) {
	p := v.scene(t)
	p.writeKernel(guest.PVHOptions{IgnorePowerButton: true})
	p.container("--grace", "1h", p.specification)
	p.connect()
	p.boot(func(l *shim.Launch) { l.Grace = new(time.Duration(0)) })
	p.console(1 << 20).count()
	p.check(p.cmd.Process.Signal(unix.SIGTERM))
	p.wantExit(0)
	if exit, err := shim.ReadExit(p.volume); err != nil || exit.Reason != shim.ReasonKilled || !exit.GraceOver {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestParseModes(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "not an absolute path",
		"--socket s":                    "not an absolute path",
		"--socket /s x":                 `unexpected argument "x"`,
		"--socket /s":                   "",
		"--socket /s --path disk/a.img": "",
		"--socket /s --types /t":        "",
		"--teapot":                      "teapot",
	} {
		if _, err := parseDisk(strings.Fields(args), io.Discard); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("disk %q: error %v, want %q", args, err, want)
		}
	}
	for args, want := range map[string]string{
		"":                       "name the specification's file",
		"spec":                   "--preparation",
		"--preparation p":        "name the specification's file",
		"--preparation p spec":   "",
		"--preparation p spec 2": "name the specification's file",
	} {
		if _, err := parsePrepare(strings.Fields(args), io.Discard); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("prepare %q: error %v, want %q", args, err, want)
		}
	}
}

func TestCopyCannot(t *testing.T) {
	dir := t.TempDir()
	if err := copySelf(filepath.Join(dir, "nonesuch", "vmlet-shim")); err == nil {
		t.Error("a copy in a folder that is not there")
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := copySelf(filepath.Join(dir, "folder")); err == nil {
		t.Error("a copy in a folder's place")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
