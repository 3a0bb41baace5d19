package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"google.golang.org/grpc/codes"
)

func (v *vm) attachDevice(r *nodev1.AttachRequest) (string, error) {
	r.Name = v.name
	reply, err := v.api.Attach(v.ctx, r)
	return reply.GetDevice(), err
}

func (v *vm) attachDisk(d *specv1.Disk) (string, error) {
	return v.attachDevice(&nodev1.AttachRequest{Device: &nodev1.AttachRequest_Disk{Disk: d}})
}

func (v *vm) detach(device string) error {
	_, err := v.api.Detach(v.ctx, &nodev1.DetachRequest{Name: v.name, Device: device})
	return err
}

func (v *vm) resize(vcpus uint32, memory string) (*nodev1.ResizeVMResponse, error) {
	return v.api.ResizeVM(v.ctx, &nodev1.ResizeVMRequest{Name: v.name, Vcpus: vcpus, Memory: memory})
}

// asksUntil asks a Linux guest until the answer is the one that is wanted: it finds what
// is plugged in some time afterwards. When it returns, the guest has answered all: a console that is
// followed anew shows old answers first, which are taken for new ones, and what is typed as a guest is
// saved is lost.
func (v *vm) asksUntil(command, pattern, want string) {
	v.t.Helper()
	ctx, cancel := v.patient()
	defer cancel()
	for {
		got := v.ask(command, pattern)[1]
		if got == want {
			word := fmt.Sprint("echo ", time.Now().UnixNano())
			v.ask(word, word)
			return
		}
		if ctx.Err() != nil {
			v.t.Fatalf("asked %q the guest says %q, want %q", command, got, want)
		}
	}
}

// sees wants a guest with these disks beside the first, by their serial numbers, in the
// order of their names, and that many network interfaces.
func (v *vm) sees(serials []string, links int) {
	v.t.Helper()
	for i, serial := range serials {
		v.asksUntil("cat /sys/block/vd"+string(rune('b'+i))+"/serial", `(\S+)`, serial)
	}
	v.asksUntil("lsblk", `lsblk (\d+)`, fmt.Sprint(1+len(serials)))
	v.asksUntil("ip", `ip (\d+)`, fmt.Sprint(1+links)) // lo
}

// TestHotplug gives a Linux guest devices and vCPUs and takes them away, with saves and a
// killed agent in between.
func TestHotplug(t *testing.T) {
	t.Parallel()
	for _, q := range oneOf(t, final) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			dir := t.TempDir()
			spec := linux(t, "hotplug")
			spec.Disks = []*specv1.Disk{{Path: newDisk(t, "raw"), Format: "raw"}}
			spec.Cpu = &specv1.CPU{MaxVcpus: 2}
			n := newNode(t, nodeOptions{qemu: q})
			v := n.boot(spec)
			v.expect("count 1 .*")

			t.Log("attach")
			data, more := newDisk(t, "qcow2"), newDisk(t, "raw")
			for serial, d := range map[string]*specv1.Disk{"DATA": {Name: "data", Path: data, Format: "qcow2"}} {
				d.Serial = serial
				for range 2 { // the second time it is there
					if name, err := v.attachDisk(d); err != nil || name != "data" {
						t.Fatal(name, err)
					}
				}
			}
			v.sees([]string{"DATA"}, 0)
			if name, err := v.attachDisk(&specv1.Disk{Path: more, Serial: "MORE"}); err != nil || name != "disk2" {
				t.Fatal(name, err)
			}
			lan, err := v.attachDevice(&nodev1.AttachRequest{Device: &nodev1.AttachRequest_Network{Network: &specv1.NetworkInterface{Name: "lan"}}})
			if err != nil || lan != "lan" {
				t.Fatal(lan, err)
			}
			v.sees([]string{"DATA", "MORE"}, 1)
			v.ask("write /dev/vdb on data", "written .* bytes")

			t.Log("resize")
			v.must(second(v.resize(2, "")))
			v.asksUntil("cat /sys/devices/system/cpu/present", `(\d+(?:-\d+)?)`, "0-1")
			v.must(second(v.resize(0, "400Mi")))
			ctx, cancel := v.patient()
			defer cancel()
			for {
				r, err := v.resize(0, "400Mi")
				v.must(err)
				if r.GetMemoryBytes() == 400<<20 {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("the guest has still %d bytes", r.GetMemoryBytes())
				}
			}

			t.Log("save and restore")
			image := filepath.Join(dir, "image")
			v.save(image, false)
			v.must(n.restore(&nodev1.RestoreVMRequest{Directory: image}))
			v.countsOn()
			v.sees([]string{"DATA", "MORE"}, 1)
			v.ask("write /dev/vdb again on data", "written .* bytes")
			v.ask("write /dev/vdc on more", "written .* bytes")
			v.asksUntil("cat /sys/devices/system/cpu/present", `(\d+(?:-\d+)?)`, "0-1")
			if s := v.get().GetStatus().GetEffectiveSpec(); s.GetMemory().GetTarget() != "400Mi" || s.GetCpu().GetSockets() != 2 {
				t.Errorf("restored it is %v, %v", s.GetMemory(), s.GetCpu())
			}

			t.Log("detach, by another agent")
			v.hangUp()
			n.signal(os.Kill)
			n.start()
			v.follow()
			v.count()
			refused(t, v.detach("disk0"), codes.InvalidArgument, "disks[0]", "was there when")
			refused(t, v.detach("nothing"), codes.NotFound, "disk0, data, disk2, lan")
			v.must(v.detach("data"))
			v.must(v.detach("lan"))
			v.asksUntil("lsblk", `lsblk (\d+)`, "2")
			v.asksUntil("ip", `ip (\d+)`, "1")
			v.must(second(v.resize(1, "512Mi")))
			v.asksUntil("cat /sys/devices/system/cpu/present", `(\d+(?:-\d+)?)`, "0")
			v.hasNot(data)

			t.Log("save and restore without them, and with one in the middle gone")
			image = filepath.Join(dir, "second")
			v.save(image, false)
			v.must(n.restore(&nodev1.RestoreVMRequest{Directory: image}))
			v.follow()
			for range 3 {
				v.count()
			}
			v.ask("write /dev/vdc still on more", "written .* bytes")
			v.asksUntil("lsblk", `lsblk (\d+)`, "2")
			v.must(v.detach("disk2"))
			v.asksUntil("lsblk", `lsblk (\d+)`, "1")
			v.shutDown()
		})
	}
}

func second[A any](_ A, err error) error { return err }

// hasNot sees that neither VMM nor shim has a file open any more.
func (v *vm) hasNot(path string) {
	v.t.Helper()
	p := v.get().GetStatus().GetProcess()
	for _, pid := range []int64{p.GetVmmPid(), p.GetShimPid()} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		v.must(err)
		for _, e := range entries {
			if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); err == nil && target == path {
				v.t.Errorf("process %d has %s still open", pid, path)
			}
		}
	}
}

// TestHotplugRefused leaves a running VM as it was.
func TestHotplugRefused(t *testing.T) {
	t.Parallel()
	qemusOrSkip(t)
	n := newNode(t, nodeOptions{})
	spec := pvh(t, "web", "emulation", guest.PVHOptions{})
	spec.Disks = []*specv1.Disk{{Name: "boot", Path: newDisk(t, "raw")}}
	v := n.boot(spec)
	before := v.get().GetStatus().GetEffectiveSpec()
	qcow2, dir := newDisk(t, "qcow2"), t.TempDir()
	for _, c := range []struct {
		disk  *specv1.Disk
		code  codes.Code
		words []string
	}{
		{&specv1.Disk{Path: filepath.Join(dir, "none")}, codes.InvalidArgument, []string{"disks[1].path", "none"}},
		{&specv1.Disk{Path: qcow2}, codes.InvalidArgument, []string{"disks[1]", "qcow2"}},
		{&specv1.Disk{Path: dir}, codes.InvalidArgument, []string{"disks[1].path"}},
		{&specv1.Disk{Path: qcow2, Format: "qcow2", Bus: "sata"}, codes.InvalidArgument, []string{"disks[1].bus", "virtio or scsi"}},
		{&specv1.Disk{Path: qcow2, Format: "qcow2", Bus: "scsi"}, codes.InvalidArgument, []string{"disks[1].bus", "SCSI controller"}},
		{&specv1.Disk{Name: "boot", Path: qcow2, Format: "qcow2"}, codes.AlreadyExists, []string{"boot"}},
		{&specv1.Disk{Path: spec.Disks[0].Path}, codes.AlreadyExists, []string{"disks[0].path"}},
	} {
		_, err := v.attachDisk(c.disk)
		refused(t, err, c.code, c.words...)
	}
	// Nobody answers for it: the guest has no driver.
	name, err := v.attachDisk(&specv1.Disk{Path: qcow2, Format: "qcow2"})
	v.must(err)
	v.pause()
	refused(t, v.detach(name), codes.DeadlineExceeded, "still has it")
	v.hasDevice(name, true)
	// A reset takes it away all the same, and the agent is told.
	from := v.now()
	_, err = v.api.ResetVM(v.ctx, &nodev1.ResetVMRequest{Name: v.name})
	v.must(err)
	v.event(from, "the disk goes", func(e *nodev1.Event) bool { return e.GetType() == "detached" })
	v.hasDevice(name, false)
	v.hasNot(qcow2)

	refused(t, second(v.resize(2, "")), codes.InvalidArgument, "cpu.maxVcpus", "stop it")
	refused(t, second(v.resize(0, "1Gi")), codes.InvalidArgument, "memory.size")
	if now := v.get().GetStatus().GetEffectiveSpec(); len(now.GetDisks()) != len(before.GetDisks()) {
		t.Errorf("it has %v", now.GetDisks())
	}
	v.kill()
	name, err = v.attachDisk(&specv1.Disk{Path: qcow2, Format: "qcow2"})
	v.must(err)
	v.must(v.detach("boot"))
	v.must(second(v.resize(2, "96Mi")))
	v.must(v.start(false))
	if s := v.get().GetStatus().GetEffectiveSpec(); len(s.GetDisks()) != 1 || s.GetDisks()[0].GetName() != name || s.GetMemory().GetSize() != "96Mi" || s.GetCpu().GetSockets() != 2 {
		t.Errorf("started anew it is %v", s)
	}
}

func (v *vm) hasDevice(name string, want bool) {
	v.t.Helper()
	has := false
	for _, d := range v.get().GetStatus().GetEffectiveSpec().GetDisks() {
		has = has || d.GetName() == name
	}
	if has != want {
		v.t.Errorf("disk %s is there: %t, want %t", name, has, want)
	}
}

// TestHotplugByCommand is as a user does it.
func TestHotplugByCommand(t *testing.T) {
	t.Parallel()
	qemusOrSkip(t)
	n := newNode(t, nodeOptions{})
	v := n.boot(pvh(t, "web", "emulation", guest.PVHOptions{}))
	disk := newDisk(t, "raw")
	for _, c := range []struct{ args, want string }{
		{"attach disk web " + disk + " --name data", "data attached to web\n"},
		{"attach network web --user", "net0 attached to web\n"},
		{"resize web --memory 32Mi", "web resized"},
	} {
		n.prints("^"+c.want, strings.Fields(c.args)...)
	}
	v.kill()
}
