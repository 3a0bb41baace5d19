package probe

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

// driver is a made-up mshv_root, as strict as the kernel's: drivers/hv/mshv_root_main.c.
type driver struct {
	t *testing.T
	// self: the device itself takes hypercalls (Linux 6.19).
	self bool
	// create and hypercall are what those calls fail with; busy is how often the hypervisor lacks memory first.
	create, hypercall error
	busy              int
	clock             uint64
	// partitions are the descriptors that were given out.
	partitions map[int]bool
}

func (d *driver) Call(int, uintptr, uintptr) (int, error) { return -1, unix.ENOTTY }

func (d *driver) Fill(fd int, request uintptr, buf []byte, links ...device.Link) (int, error) {
	if uintptr(len(buf)) < request>>16&0x3FFF {
		return -1, unix.EFAULT // the kernel copies as many bytes as the request says
	}
	switch {
	case request == 0x4010B800 && !d.partitions[fd]:
		return d.createPartition(buf)
	case request == 0xC020B807 && (d.self || d.partitions[fd]):
		return d.rootHvcall(buf, links)
	}
	return -1, unix.ENOTTY
}

func (d *driver) createPartition(buf []byte) (int, error) {
	flags, isolation := binary.NativeEndian.Uint64(buf), binary.NativeEndian.Uint64(buf[8:])
	if flags&^7 != 0 || isolation != 0 {
		return -1, unix.EINVAL
	}
	if d.create != nil {
		return -1, d.create
	}
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		d.t.Error(err)
	}
	d.partitions[fd] = true
	return fd, nil
}

func (d *driver) rootHvcall(buf []byte, links []device.Link) (int, error) {
	at := map[int][]byte{}
	for _, l := range links {
		at[l.Offset] = l.Buf
	}
	in, out := at[16], at[24]
	half := func(i int) int { return int(binary.NativeEndian.Uint16(buf[2*i:])) }
	code, reps, inSize, outSize, status := half(0), half(1), half(2), half(3), half(4)
	reserved := half(5) | half(6) | half(7)
	switch {
	case status != 0 || reserved != 0 || in == nil || inSize < 8 || inSize > 4096 || out != nil && (outSize == 0 || outSize > 4096):
		return -1, unix.EINVAL
	case code != 0x44 || reps != 0: // HVCALL_GET_PARTITION_PROPERTY is the only one that is let through here
		return -1, unix.EINVAL
	case len(in) < inSize || len(out) < outSize:
		return -1, unix.EFAULT
	case inSize != 16 || outSize != 8 || binary.NativeEndian.Uint32(in[12:]) != 0:
		return -1, unix.EINVAL // HV_STATUS_INVALID_PARAMETER
	case binary.NativeEndian.Uint32(in[8:]) != 0x00060009:
		return -1, unix.EINVAL
	case d.hypercall != nil:
		return -1, d.hypercall
	case d.busy > 0:
		d.busy--
		return -1, unix.EAGAIN
	}
	binary.NativeEndian.PutUint64(out, d.clock)
	return 0, nil
}

func machine(t *testing.T, d *driver) MSHV {
	t.Helper()
	d.t, d.partitions = t, map[int]bool{}
	dev := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dev, "mshv")); err != nil {
		t.Fatal(err)
	}
	return MSHV{Roots: sysfs.Roots{Dev: dev}, Kernel: d}
}

func TestCheck(t *testing.T) {
	if s := machine(t, &driver{}).Check(t.Context()); s.Level != hypervisor.Works {
		t.Errorf("%+v", s)
	}
	for errno, remedy := range map[unix.Errno]string{
		unix.ENOTTY: "another interface", unix.EPERM: "root partition", unix.ENOMEM: "stop a VM",
	} {
		s := machine(t, &driver{create: errno}).Check(t.Context())
		if s.Level != hypervisor.Unusable || s.Errno != errno || !strings.Contains(s.Remedy, remedy) {
			t.Errorf("%v: %+v", errno, s)
		}
	}
}

func TestDiscover(t *testing.T) {
	tests := []struct {
		name          string
		driver        driver
		hz            uint64
		partitions    int
		unknown, says string
	}{
		{"self", driver{self: true, clock: 2_400_000_000}, 2_400_000_000, 0, "", ""},
		{"by a partition", driver{clock: 2_400_000_000}, 2_400_000_000, 1, "", ""},
		{"short of memory", driver{self: true, clock: 1e9, busy: 3}, 1e9, 0, "", ""},
		{"out of memory", driver{self: true, clock: 1e9, busy: 1 << 30}, 0, 0, "hypervisors.mshv.tsc", "EAGAIN"},
		{"no partition", driver{create: unix.EPERM}, 0, 0, "hypervisors.mshv.tsc", "MSHV_CREATE_PARTITION: operation not permitted (EPERM)"},
		{"refused", driver{self: true, hypercall: unix.EIO}, 0, 0, "hypervisors.mshv.tsc", "clock frequency: input/output error (EIO)"},
		{"no clock", driver{self: true}, 0, 0, "hypervisors.mshv.tsc", "0 Hz"},
		{"senseless", driver{self: true, clock: 1 << 63}, 0, 0, "hypervisors.mshv.tsc", "9223372036854775808 Hz"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var found capabilitiesv1.HypervisorCapabilities
			unknown := machine(t, &tt.driver).Discover(t.Context(), &found)
			if found.GetTsc().GetFrequencyHz() != tt.hz || len(tt.driver.partitions) != tt.partitions {
				t.Errorf("%v, %d partitions", &found, len(tt.driver.partitions))
			}
			for fd := range tt.driver.partitions {
				if err := unix.Fstat(fd, new(unix.Stat_t)); err != unix.EBADF {
					t.Errorf("the partition is still open: %v", err)
				}
			}
			if tt.unknown == "" && len(unknown) == 0 {
				return
			}
			if len(unknown) != 1 || unknown[0].Fact != tt.unknown || !strings.Contains(unknown[0].Reason, tt.says) {
				t.Errorf("unknown: %v", unknown)
			}
		})
	}
}

// Without the device nothing is unknown; with one that can't be opened, all is.
func TestDiscoverNoDevice(t *testing.T) {
	dev := t.TempDir()
	m := MSHV{Roots: sysfs.Roots{Dev: dev}}
	var found capabilitiesv1.HypervisorCapabilities
	if unknown := m.Discover(t.Context(), &found); len(unknown) != 0 || found.Tsc != nil {
		t.Errorf("%v, %v", unknown, &found)
	}
	if err := os.WriteFile(filepath.Join(dev, "mshv"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unknown := m.Discover(t.Context(), &found)
	if len(unknown) != 1 || unknown[0].Fact != "hypervisors.mshv" || !strings.Contains(unknown[0].Reason, "not a character device") {
		t.Errorf("%v", unknown)
	}
}
