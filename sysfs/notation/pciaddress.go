// Package notation reads and writes what the kernel writes in many places: lists of CPUs and NUMA nodes, PCI addresses, vendors'
// and devices' numbers. It reads no files; package sysfs does.
package notation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// PCIAddress is where a PCI function is: domain, bus, device and function. One
// that can't be doesn't come to be: it is made by ParsePCIAddress alone. The
// zero value is 0000:00:00.0. Addresses compare with == and may be map keys.
type PCIAddress struct {
	// packed is domain (32 bits), bus (8), device (5), function (3), so that
	// its order is that of the kernel's enumeration.
	packed uint64
}

// ParsePCIAddress reads the kernel's notation, four to eight hex digits for the
// domain, in either case: "0000:00:1f.2", "10000:e1:00.0" (a domain behind
// Intel's VMD). The domain can't be left out, as it is not always 0.
func ParsePCIAddress(text string) (PCIAddress, error) {
	address, ok := parsePCIAddress(text)
	if !ok {
		return address, fmt.Errorf("%.40q is not a PCI address: write domain:bus:device.function, such as \"0000:00:1f.2\"", text)
	}
	return address, nil
}

// parsePCIAddress makes no error, as most names that it is asked for are others.
func parsePCIAddress(text string) (PCIAddress, bool) {
	domainText, rest, found := strings.Cut(text, ":")
	// What follows the domain is "bb:dd.f".
	if !found || len(domainText) < 4 || len(rest) != 7 || rest[2] != ':' || rest[5] != '.' {
		return PCIAddress{}, false
	}
	domain, ok1 := ParseHex(domainText, 32)
	bus, ok2 := ParseHex(rest[:2], 8)
	device, ok3 := ParseHex(rest[3:5], 5)
	function, ok4 := ParseHex(rest[6:], 3)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return PCIAddress{}, false
	}
	return PCIAddress{domain<<16 | bus<<8 | device<<3 | function}, true
}

// ParseHex reads hex digits alone, no more of them than so many bits need.
func ParseHex(text string, bits int) (uint64, bool) {
	if len(text) > (bits+3)/4 {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 16, 64)
	return n, err == nil && n>>bits == 0
}

// Domain is the PCI segment; it has more than 16 bits where Linux made it up.
func (a PCIAddress) Domain() uint32 { return uint32(a.packed >> 16) }

// Bus is the bus number in the domain.
func (a PCIAddress) Bus() uint8 { return uint8(a.packed >> 8) }

// Device is the device (slot) on the bus, 0 to 31.
func (a PCIAddress) Device() uint8 { return uint8(a.packed>>3) & 31 }

// Function is that of the device, 0 to 7.
func (a PCIAddress) Function() uint8 { return uint8(a.packed) & 7 }

// String returns the kernel's notation, which is also the name of the
// function's folder.
func (a PCIAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", a.Domain(), a.Bus(), a.Device(), a.Function())
}

// Compare orders by number: domain 10000 is after 1000.
func (a PCIAddress) Compare(b PCIAddress) int { return cmp.Compare(a.packed, b.packed) }

// MarshalText writes String's notation.
func (a PCIAddress) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParsePCIAddress does.
func (a *PCIAddress) UnmarshalText(text []byte) error {
	parsed, err := ParsePCIAddress(string(text))
	if err == nil {
		*a = parsed
	}
	return err
}

// FolderPCIAddress reads an address as the kernel itself writes it, so that no
// two names are one address.
func FolderPCIAddress(name string) (PCIAddress, bool) {
	address, ok := parsePCIAddress(name)
	return address, ok && address.String() == name
}

// CompareDevices orders the names of devices: PCI addresses by number, before
// all others.
func CompareDevices(a, b string) int {
	addressA, isA := FolderPCIAddress(a)
	addressB, isB := FolderPCIAddress(b)
	switch {
	case isA && isB:
		return addressA.Compare(addressB)
	case isA:
		return -1
	case isB:
		return 1
	}
	return cmp.Compare(a, b)
}
