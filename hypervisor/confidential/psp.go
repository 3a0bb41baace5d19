package confidential

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/vmlet/vmlet/hypervisor/device"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"golang.org/x/sys/unix"
)

// From linux/psp-sev.h. Its structures are packed: struct sev_issue_cmd has cmd (32 bits), data (a 64-bit address), error (32
// bits); struct sev_user_data_status has api_major, api_minor, state (8 bits each), flags (32), build (8), guest_count (32).
const (
	issueCmdSize      = 16
	issueCmdData      = 4
	issueCmdError     = 12
	sevIssueCmd       = 3<<30 | issueCmdSize<<16 | 'S'<<8 // SEV_ISSUE_CMD, _IOWR('S', 0, struct sev_issue_cmd)
	sevPlatformStatus = 1                                 // SEV_PLATFORM_STATUS
	statusSize        = 12
)

// platformStatus asks SEV's firmware for its version and state, which changes nothing.
func platformStatus(kernel device.Kernel, fd int, path string) (*capabilitiesv1.SevPlatform, *device.Failure) {
	cmd, status := make([]byte, issueCmdSize), make([]byte, statusSize)
	binary.NativeEndian.PutUint32(cmd, sevPlatformStatus)
	_, err := kernel.Fill(fd, sevIssueCmd, cmd, device.Link{Offset: issueCmdData, Buf: status})
	if err != nil {
		fail := device.Failed(path+": SEV_PLATFORM_STATUS", device.Errno(err), statusRemedy(device.Errno(err)))
		if code := int32(binary.NativeEndian.Uint32(cmd[issueCmdError:])); code > 0 {
			fail.Reason += fmt.Sprintf(", the firmware says %#x", code)
		}
		return nil, fail
	}
	return parseStatus(status)
}

func statusRemedy(errno syscall.Errno) string {
	switch errno {
	case unix.ENODEV, unix.EIO:
		return "the firmware's processor (PSP) doesn't answer: look in the kernel's log (dmesg), update the firmware"
	case unix.ENOTTY, unix.EINVAL:
		return "the device is not SEV's: look what made it"
	case unix.EBUSY, unix.ETIMEDOUT:
		return "the firmware is busy: try again"
	}
	return ""
}

// parseStatus reads a struct sev_user_data_status.
func parseStatus(b []byte) (*capabilitiesv1.SevPlatform, *device.Failure) {
	if len(b) != statusSize {
		return nil, &device.Failure{Reason: fmt.Sprintf("SEV's status has %d bytes and %d are known", len(b), statusSize)}
	}
	// enum sev_state of the kernel's linux/psp-sev.h.
	state, known := map[byte]string{0: "uninitialized", 1: "initialized", 2: "working"}[b[2]]
	if !known {
		state = fmt.Sprintf("state %d", b[2])
	}
	return &capabilitiesv1.SevPlatform{
		ApiMajor: uint32(b[0]), ApiMinor: uint32(b[1]), State: state,
		Build: uint32(b[7]), GuestCount: binary.NativeEndian.Uint32(b[8:]),
	}, nil
}
