package probe

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"golang.org/x/sys/unix"
)

// Facts by their path in the document.
const (
	factAll = string(fact.Hypervisors) + "." + hypervisor.NameMSHV
	factTSC = factAll + "." + string(fact.TSC)
)

// From linux/mshv.h: MSHV_ROOT_HVCALL is _IOWR(MSHV_IOCTL, 7, struct mshv_root_hvcall) on a partition, and on /dev/mshv, for the
// host's own partition, from Linux 6.19. The structure: code, reps, in_sz, out_sz, status (16 bits each), 6 reserved bytes,
// in_ptr, out_ptr (64 bits each).
const (
	rootHvcallSize = 32
	mshvRootHvcall = 3<<30 | rootHvcallSize<<16 | 0xB8<<8 | 7

	hvcallInSize  = 4
	hvcallOutSize = 6
	hvcallIn      = 16
	hvcallOut     = 24
)

// From the kernel's include/hyperv (hvgdk_mini.h, hvhdk.h, hvhdk_mini.h). struct hv_input_get_partition_property: partition_id
// (64 bits, which the kernel fills in), property_code, padding (32 bits each); the answer has 64 bits.
const (
	hvcallGetPartitionProperty = 0x0044     // HVCALL_GET_PARTITION_PROPERTY
	propertyClockFrequency     = 0x00060009 // HV_PARTITION_PROPERTY_PROCESSOR_CLOCK_FREQUENCY, in Hz
)

var _ hypervisor.Discoverer = MSHV{}

// Discover asks for the TSC's frequency, which is all that Linux's interface tells of the hypervisor: it has no call for
// extensions or limits (MSHV_CHECK_EXTENSION was never part of Linux), and Hyper-V's features are its guests' by nature, as the
// VMM sets them. Where there is no /dev/mshv there is nothing to ask for, and so nothing unknown.
func (m MSHV) Discover(ctx context.Context, into *capabilitiesv1.HypervisorCapabilities) []*capabilitiesv1.UnknownFact {
	type answer struct {
		hz   uint64
		fact string
		err  error
	}
	a, err := device.Within(ctx, func(context.Context) answer {
		fd, fail := device.Open(m.Device(), absentRemedy)
		if fail != nil {
			if device.Absent(fail.Errno) {
				return answer{}
			}
			return answer{fact: factAll, err: fail}
		}
		defer unix.Close(fd)
		hz, err := m.clockFrequency(fd)
		return answer{hz: hz, fact: factTSC, err: err}
	})
	if err != nil {
		a = answer{fact: factAll, err: device.NoAnswer(m.Device(), err)}
	}
	if a.err != nil {
		return []*capabilitiesv1.UnknownFact{{Fact: a.fact, Reason: a.err.Error()}}
	}
	if a.hz != 0 {
		into.Tsc = &capabilitiesv1.TscInfo{FrequencyHz: a.hz}
	}
	return nil
}

// clockFrequency asks the host's own partition, and where the kernel is too old for that a new one.
func (m MSHV) clockFrequency(fd int) (uint64, error) {
	hz, err := m.property(fd, propertyClockFrequency)
	if err == unix.ENOTTY {
		partition, fail := m.createPartition(fd)
		if fail != nil {
			return 0, fail
		}
		defer unix.Close(partition)
		hz, err = m.property(partition, propertyClockFrequency)
	}
	if err != nil {
		return 0, device.Failed(m.Device()+": MSHV_ROOT_HVCALL for the processor's clock frequency", device.Errno(err), "")
	}
	// 64 GHz is more than any clock has.
	if hz == 0 || hz > 64e9 {
		return 0, fmt.Errorf("%s: the hypervisor says that the processor's clock runs at %d Hz", m.Device(), hz)
	}
	return hz, nil
}

// property asks for a property of a partition.
func (m MSHV) property(fd int, code uint32) (uint64, error) {
	in, out := make([]byte, 16), make([]byte, 8)
	binary.NativeEndian.PutUint32(in[8:], code)
	// The kernel gives the hypervisor a page each time that it has no memory left for the call.
	for range 16 {
		call := make([]byte, rootHvcallSize)
		binary.NativeEndian.PutUint16(call, hvcallGetPartitionProperty)
		binary.NativeEndian.PutUint16(call[hvcallInSize:], uint16(len(in)))
		binary.NativeEndian.PutUint16(call[hvcallOutSize:], uint16(len(out)))
		_, err := m.kernel().Fill(fd, mshvRootHvcall, call, device.Link{Offset: hvcallIn, Buf: in}, device.Link{Offset: hvcallOut, Buf: out})
		if err == unix.EAGAIN {
			continue
		}
		return binary.NativeEndian.Uint64(out), err
	}
	return 0, unix.EAGAIN
}
