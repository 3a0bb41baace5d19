package e2e

import (
	"errors"
	"fmt"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"path/filepath"
	"testing"
	"time"
)

// linux is the specification of a Linux guest, which is emulated.
func linux(t *testing.T, name string) *specv1.VirtualMachineSpec {
	t.Helper()
	kernel, initrd, err := guest.Linux(t.Context())
	skipIfMissing(t, err)
	return &specv1.VirtualMachineSpec{
		Name: name, Hypervisor: "emulation",
		Memory: &specv1.Memory{Size: "512Mi"},
		Boot:   &specv1.Boot{Kernel: &specv1.KernelBoot{Path: kernel, Initrd: initrd, Cmdline: "console=ttyS0 quiet no_timer_check"}},
	}
}

func skipIfMissing(t *testing.T, err error) {
	t.Helper()
	if missing := new(guest.MissingError); errors.As(err, &missing) {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ask types a command to a Linux guest and waits for its answer.
func (v *vm) ask(command, answer string) []string {
	v.t.Helper()
	v.typeIn(command + "\n")
	return v.expect(answer)
}

// apart is how long a guest stays saved where its clock has to have been put
// right afterwards: well more than a clock may be off.
const (
	apart = 6 * time.Second
	off   = 2 * time.Second
)

func TestLinux(t *testing.T) {
	t.Parallel()
	for _, q := range qemusOrSkip(t) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			spec := linux(t, "linux")
			n := newNode(t, nodeOptions{qemu: q})
			v := n.boot(spec)
			v.expect("vmlet guest up: .*")
			v.expect("count 1 .*")
			v.ask("mem 200 42", "filled 200 MiB")
			sum := v.ask("verify", "verified (.*)")[1]
			before := v.ask("vmgenid", "vmgenid (.*)")[1]

			image := filepath.Join(t.TempDir(), "image")
			v.save(image, false)
			<-time.After(apart) // this long is the guest not to miss
			v.must(n.restore(&nodev1.RestoreVMRequest{Directory: image}))
			v.countsOn()
			v.rightClock("rtc", time.RFC3339)
			v.rightClock("date", time.RFC3339Nano)
			after := v.ask("vmgenid", "vmgenid (.*)")[1]
			if before == after {
				t.Errorf("the generation id is %s as before", after)
			}
			if got := v.ask("verify", "(verified|corrupt) (.*)")[2]; got != sum {
				t.Errorf("memory has the sum %s, want %s", got, sum)
			}
			if n.mapsImages("qemu") {
				v.balloonLeavesImageAlone(sum)
			}
			v.shutDown()
		})
	}
}

// rightClock asks for a time until it is right: the guest's agent is told in
// the background.
func (v *vm) rightClock(clock, format string) {
	v.t.Helper()
	ctx, cancel := v.patient()
	defer cancel()
	for {
		before := time.Now()
		text := v.ask(clock, clock+" (.*)")[1]
		got, err := time.Parse(format, text)
		v.must(err)
		if got.After(before.Add(-off)) && got.Before(time.Now().Add(off)) {
			return
		}
		if ctx.Err() != nil {
			v.t.Fatalf("the guest's %s says %v, and it is %v", clock, got, before.UTC())
		}
	}
}

// balloonLeavesImageAlone restores lazily and has the guest free memory, which
// a balloon with free page reporting would punch out of the image.
func (v *vm) balloonLeavesImageAlone(sum string) {
	v.t.Helper()
	image := filepath.Join(v.t.TempDir(), "lazy")
	v.save(image, false)
	v.must(v.restore(&nodev1.RestoreVMRequest{Directory: image, Lazy: true}))
	v.countsOn()
	if got := v.ask("verify", "(verified|corrupt) (.*)")[2]; got != sum {
		v.t.Errorf("restored lazily memory has the sum %s, want %s", got, sum)
	}
	v.ask("mem 8 43", "filled 8 MiB") // which lets go of the rest
	for range 15 {
		v.count() // free pages are reported after two seconds
	}
	v.verify(image)
}

// shutDown presses the power button and sees the guest obey.
func (v *vm) shutDown() {
	v.t.Helper()
	v.hangUp()
	r, err := v.api.StopVM(v.ctx, &nodev1.StopVMRequest{Name: v.name})
	v.must(err)
	if r.GetKilled() {
		v.t.Error("the guest was killed, want it to shut down")
	}
	v.is(stopped)
}

// TestCloudInit boots a Debian from disk that prints what its user-data says.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("boots a whole Debian under emulation")
	}
	qemusOrSkip(t)
	base, err := guest.CloudDisk(t.Context())
	skipIfMissing(t, err)
	overlay := filepath.Join(t.TempDir(), "overlay.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay)

	spec := linux(t, "debian")
	spec.Boot.Kernel.Cmdline = guest.CloudDiskCmdline
	spec.Memory.Size = "1Gi"
	spec.Disks = []*specv1.Disk{{
		Path: overlay, Format: "qcow2",
		BackingFiles: []*specv1.BackingFile{{Path: base, Format: "qcow2"}},
	}}
	// The words are put together by the guest: what is echoed is no proof.
	spec.CloudInit = &specv1.CloudInit{UserData: fmt.Sprintf("#cloud-config\nruncmd:\n- %s\n",
		`echo "user-data of $(hostname) was $(printf re)ad" >/dev/ttyS0`)}
	n := newNode(t, nodeOptions{})
	v := n.boot(spec)
	v.expect("user-data of debian was read")
	v.shutDown()
}
