package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openRTC opens the machine's clock. The kernel lets one have it at a time and refuses
// others: the console's commands and the guest agent's wait for each other.
func openRTC(flag int) (*os.File, error) {
	for {
		f, err := os.OpenFile("/dev/rtc0", flag, 0)
		if !errors.Is(err, unix.EBUSY) {
			return f, err
		}
		time.Sleep(time.Millisecond)
	}
}

// readRTC reads the machine's clock, which vmlet's guests have in UTC.
func readRTC() (time.Time, error) {
	f, err := openRTC(os.O_RDONLY)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	t, err := unix.IoctlGetRTCTime(int(f.Fd()))
	if err != nil {
		return time.Time{}, fmt.Errorf("/dev/rtc0: %w", err)
	}
	return time.Date(int(t.Year)+1900, time.Month(t.Mon+1), int(t.Mday), int(t.Hour), int(t.Min), int(t.Sec), 0, time.UTC), nil
}

func showRTC([]string) (string, error) {
	t, err := readRTC()
	if err != nil {
		return "", err
	}
	return "rtc " + t.Format(time.RFC3339), nil
}

// writeRTC sets the machine's clock.
func writeRTC(t time.Time) error {
	f, err := openRTC(os.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	t = t.UTC()
	return unix.IoctlSetRTCTime(int(f.Fd()), &unix.RTCTime{
		Year: int32(t.Year() - 1900), Mon: int32(t.Month() - 1), Mday: int32(t.Day()),
		Hour: int32(t.Hour()), Min: int32(t.Minute()), Sec: int32(t.Second()),
	})
}

// generationOffset is where in its page the generation id is: docs/specs/vmgenid
// of QEMU, which leaves room before it for what firmware may add.
const generationOffset = 40

// showGenerationID answers with the VM generation id. The cloud kernel has no
// driver for it, so this looks up its address in the ACPI table that QEMU makes
// (a 32-bit constant named VGIA) and reads it from there.
func showGenerationID([]string) (string, error) {
	tables, err := filepath.Glob("/sys/firmware/acpi/tables/SSDT*")
	if err != nil {
		return "", err
	}
	for _, path := range tables {
		table, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		// AML: Name (VGIA, DWord): the name, the prefix 0x0c, four bytes.
		_, value, found := bytes.Cut(table, []byte("VGIA\x0c"))
		if !found || len(value) < 4 {
			continue
		}
		id, err := readPhysical(int64(binary.LittleEndian.Uint32(value))+generationOffset, 16)
		if err != nil {
			return "", fmt.Errorf("vmgenid: %w", err)
		}
		return "vmgenid " + formatGUID(id), nil
	}
	return "", errors.New("vmgenid: this machine has none")
}

// formatGUID writes a GUID as Microsoft lays it out: the first three fields
// little-endian.
func formatGUID(b []byte) string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(b),
		binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:16])
}

const pageSize = 4096

// readPhysical reads memory that firmware keeps for itself, within one page.
// Mapped, since the kernel has no address of its own for it to read through.
func readPhysical(address int64, size int) ([]byte, error) {
	f, err := os.Open("/dev/mem")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := int(address % pageSize)
	page, err := unix.Mmap(int(f.Fd()), address-int64(at), pageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("/dev/mem at %#x: %w", address, err)
	}
	defer unix.Munmap(page)
	if at+size > pageSize {
		return nil, fmt.Errorf("/dev/mem: %d bytes at %#x are not within a page", size, address)
	}
	return bytes.Clone(page[at : at+size]), nil
}

// Registers of the Intel 6300ESB watchdog (datasheet 300641, chapter 20).
const (
	esbID       = "0x25ab"
	esbTimer1   = 0x00
	esbTimer2   = 0x04
	esbReload   = 0x0c
	esbConfig   = 0x60 // in PCI configuration space
	esbLock     = 0x68
	esbEnable   = 1 << 1
	esbTicksSec = 1000 // about: the timer counts in units of 0.98 ms
)

// armWatchdog takes "SECONDS" and lets the watchdog bite after them. The cloud
// kernel has no driver for it, so this writes to its registers.
func armWatchdog(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("usage: watchdog SECONDS")
	}
	seconds, err := strconv.ParseUint(args[0], 10, 8)
	if err != nil || seconds == 0 {
		return "", fmt.Errorf("watchdog: %q is no number of seconds", args[0])
	}
	devices, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		return "", err
	}
	for _, device := range devices {
		if attribute(device, "device") == esbID {
			if err := armESB(device, uint32(seconds*esbTicksSec)); err != nil {
				return "", fmt.Errorf("watchdog: %w", err)
			}
			return fmt.Sprintf("watchdog armed %d s", seconds), nil
		}
	}
	return "", errors.New("watchdog: this machine has no i6300esb")
}

// armESB starts both stages of the timer, the first as short as can be.
func armESB(device string, ticks uint32) error {
	if err := os.WriteFile(device+"/enable", []byte("1"), 0); err != nil {
		return err
	}
	f, err := os.OpenFile(device+"/resource0", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	// The registers are fewer than a page, and anywhere within theirs.
	var start uint64
	if _, err := fmt.Sscanf(attribute(device, "resource"), "0x%x", &start); err != nil {
		return fmt.Errorf("%s/resource: %w", device, err)
	}
	registers := page[start%pageSize:]
	for _, timer := range []struct {
		offset int
		ticks  uint32
	}{{esbTimer1, 1}, {esbTimer2, ticks}} {
		store(&registers[esbReload], uint16(0x80)) // the unlocking
		store(&registers[esbReload], uint16(0x86)) // sequence
		store(&registers[timer.offset], timer.ticks)
	}
	config, err := os.OpenFile(device+"/config", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer config.Close()
	_, err = config.WriteAt([]byte{3, 0}, esbConfig) // slow clock, no interrupt halfway, reboot at the end
	if err != nil {
		return err
	}
	_, err = config.WriteAt([]byte{esbEnable}, esbLock)
	return err
}

// store writes to a register with one access of its own width. It is not inlined,
// for the compiler would leave out a store that another one follows.
//
//go:noinline
func store[T uint16 | uint32](register *byte, value T) { *(*T)(unsafe.Pointer(register)) = value }

// getLocalCID is IOCTL_VM_SOCKETS_GET_LOCAL_CID of linux/vm_sockets.h.
const getLocalCID = 0x7b9

// showCID answers with the context id that this guest has on vsock.
func showCID([]string) (string, error) {
	f, err := os.Open("/dev/vsock")
	if err != nil {
		return "", err
	}
	defer f.Close()
	cid, err := unix.IoctlGetUint32(int(f.Fd()), getLocalCID)
	if err != nil {
		return "", fmt.Errorf("/dev/vsock: %w", err)
	}
	return fmt.Sprintf("vsock %d", cid), nil
}
