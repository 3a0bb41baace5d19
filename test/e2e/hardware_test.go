package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// TestHardware has a Linux guest look at what it was given, before and after it was
// saved, and end where it would begin again.
func TestHardware(t *testing.T) {
	t.Parallel()
	for _, q := range qemusOrSkip(t) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			spec := linux(t, "hardware")
			spec.System = &specv1.SystemInformation{
				Uuid: "5d307ca9-b3ef-428c-8861-06e72d69f223", Manufacturer: "Some,Body=x", Serial: "S 1", AssetTag: "rack 4",
			}
			spec.Clock = &specv1.Clock{Base: &specv1.Clock_Timezone{Timezone: "Asia/Kolkata"}}
			spec.Features = &specv1.Features{Hyperv: &specv1.HyperV{SynicTimer: proto.Bool(true)}, KvmHidden: proto.Bool(true)}
			spec.Devices = &specv1.Devices{
				Video: new(specv1.Video), Inputs: []*specv1.Input{{}, {Bus: "virtio"}},
				GuestAgent: proto.Bool(false), // this guest's would set the clock to UTC
			}
			spec.OnReboot = "end"
			n := newNode(t, nodeOptions{qemu: q})
			v := n.boot(spec)
			v.expect("count 1 .*")
			v.seesHardware()
			image := filepath.Join(t.TempDir(), "image")
			v.save(image, false)
			v.must(n.restore(&nodev1.RestoreVMRequest{Directory: image}))
			v.countsOn()
			v.seesHardware()
			from := v.now()
			v.typeIn("reboot\n")
			v.becomes(from, stopped)
		})
	}
}

func (v *vm) seesHardware() {
	v.t.Helper()
	for _, file := range []struct{ path, holds string }{
		{"/sys/class/dmi/id/product_uuid", "5d307ca9-b3ef-428c-8861-06e72d69f223"},
		{"/sys/class/dmi/id/sys_vendor", "Some,Body=x"},
		{"/sys/class/dmi/id/product_serial", "S 1"},
		{"/sys/class/dmi/id/chassis_asset_tag", "rack 4"},
		{"/sys/bus/pci/devices/0000:00:01.0/class", "0x030000"}, // a VGA controller
		{"/sys/bus/pci/devices/0000:00:09.0/class", "0x0c0330"}, // USB 3, with the tablet
		{"/proc/bus/input/devices", `N: Name="QEMU Virtio Tablet"`},
	} {
		v.ask("cat "+file.path, file.holds)
		v.expect("cat .* bytes")
	}
	const ahead = 5*time.Hour + 30*time.Minute
	text := v.ask("rtc", "rtc (.*)")[1]
	got, err := time.Parse(time.RFC3339, text)
	v.must(err)
	if behind := time.Until(got) - ahead; behind.Abs() > time.Minute {
		v.t.Errorf("the guest's clock says %s, which is %v from the time in its zone", text, behind)
	}
}

// TestNoSpace: a guest whose disk has no room stands still, says why, and goes on when
// there is room.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	qemusOrSkip(t)
	small := tmpfs(t, "1m")
	disk, filler := filepath.Join(small, "disk.img"), filepath.Join(small, "filler")
	spec := linux(t, "full")
	spec.Disks = []*specv1.Disk{{Name: "data", Path: disk, Cache: "writeback"}}
	n := newNode(t, nodeOptions{})
	n.must(os.WriteFile(disk, nil, 0o600))
	n.must(os.Truncate(disk, 8<<20))
	v := n.boot(spec)
	v.expect("count 1 .*")
	fill(t, filler)

	from := v.now()
	v.typeIn("write /dev/vda something\n")
	s := v.becomes(from, paused)
	if s.GetPauseReason() != nodev1.PauseReason_PAUSE_REASON_IO_ERROR || s.GetPauseDisk() != "data" {
		t.Errorf("paused for %s of disk %q (%s), want an I/O error of disk data", s.GetPauseReason(), s.GetPauseDisk(), s.GetMessage())
	}
	from = v.now()
	_, err := v.api.ResumeVM(v.ctx, &nodev1.ResumeVMRequest{Name: v.name})
	if err != nil {
		refused(t, err, codes.Unavailable, "make room")
	} else { // it ran until its write had failed again
		v.becomes(from, paused)
	}
	v.must(os.Remove(filler))
	v.resume()
	v.expect("written .* bytes")
	if s := v.is(running); s.GetPauseReason() != nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED {
		t.Errorf("it runs and is paused for %s", s.GetPauseReason())
	}
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
	}
}
