package sysfs

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// maxDevices bounds the devices of one kind. The largest machines have some
// thousands, virtual functions included.
const maxDevices = 1 << 14

// maxDeviceEntries bounds what is listed of all devices' folders together: a PCI
// function's has some 50 entries, and a tree whose links all lead to one huge
// folder would otherwise keep us for hours.
const maxDeviceEntries = 1 << 20

// Bounds on names (NAME_MAX of Linux) and on what devices say in words, in bytes.
const (
	maxWord   = 255
	maxSaying = 1024
)

// deviceReader is a reader with what the devices' kinds have to know of one another.
type deviceReader struct {
	*reader
	h           *Host
	entriesLeft int
	// pci are the functions by address; order has them sorted.
	pci   map[PCIAddress]*pciFunction
	order []*pciFunction
	// groups are the IOMMU groups that there are.
	groups map[int]bool
	// near are the lists of CPUs that have been checked, by their text.
	near map[string]IDList
}

// entries lists a folder within the bound for all of them, sorted.
func (d *deviceReader) entries(path string) []string {
	if d.entriesLeft <= 0 {
		return nil
	}
	names := d.names(path)
	if d.entriesLeft -= len(names); d.entriesLeft <= 0 {
		d.note(path, "the devices' folders have more than %d entries together; the rest is left out", maxDeviceEntries)
	}
	return names
}

// present lists a device's folder, and notes that there is none. No device's is
// empty.
func (d *deviceReader) present(dir string) []string {
	noted := len(d.notes)
	names := d.entries(dir)
	if len(names) == 0 && len(d.notes) == noted && d.entriesLeft > 0 {
		d.note(dir, "there is nothing behind this name")
	}
	return names
}

// choose lists those entries of a folder that are devices by their names, at
// most maxDevices. One note says that there are others.
func (d *deviceReader) choose(path string, isDevice func(name string) bool, kind string) []string {
	names := d.entries(path)
	chosen, odd, example := names[:0], 0, ""
	for _, name := range names {
		if isDevice(name) {
			chosen = append(chosen, name)
			continue
		}
		if odd++; odd == 1 {
			example = name
		}
	}
	if odd > 0 {
		d.note(path, "entries that are not %s: %d, such as %.80q", kind, odd, example)
	}
	if len(chosen) > maxDevices {
		d.note(path, "there are more than %d; the rest is left out", maxDevices)
		chosen = chosen[:maxDevices]
	}
	return chosen
}

// has reports whether a sorted listing has a name.
func has(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

// missing notes that a file that every device has isn't among its entries.
func (d *deviceReader) missing(dir, name string, entries []string) bool {
	if has(entries, name) {
		return false
	}
	d.note(dir+"/"+name, "there is no such file")
	return true
}

// hex reads a number of so many bits in hex digits, "0x" before it or not; 0 if
// there is none.
func (d *deviceReader) hex(path string, bits int) uint64 {
	text, ok := d.text(path)
	if !ok {
		return 0
	}
	n, ok := notation.ParseHex(strings.TrimPrefix(text, "0x"), bits)
	if !ok {
		d.note(path, "%.40q is not a hexadecimal number of at most %d bits", text, bits)
		return 0
	}
	return n
}

// within reads a whole number between two; otherwise is for one that is not
// there or makes no sense.
func (d *deviceReader) within(path string, low, high, otherwise int64) int {
	n, ok := d.number(path)
	if !ok {
		return int(otherwise)
	}
	if n < low || n > high {
		d.note(path, "%d is not between %d and %d", n, low, high)
		return int(otherwise)
	}
	return int(n)
}

// linkWord returns the name that a link leads to; empty: none, or one that no
// driver or type can have.
func (d *deviceReader) linkWord(path string) string {
	name, ok := d.link(path)
	if !ok {
		return ""
	}
	if !isWord(name) {
		d.note(path, "it leads to %.80q, which is not a name", name)
		return ""
	}
	return name
}

// linkAddress returns the PCI function that a link leads to, if there is it.
func (d *deviceReader) linkAddress(path string) (PCIAddress, bool) {
	name, ok := d.link(path)
	if !ok {
		return PCIAddress{}, false
	}
	address, ok := notation.FolderPCIAddress(name)
	if !ok {
		d.note(path, "it leads to %.80q, which is not a PCI address", name)
		return PCIAddress{}, false
	}
	if d.pci[address] == nil {
		d.note(path, "there is no device %s", address)
		return PCIAddress{}, false
	}
	return address, true
}

// linkGroup returns the number of the IOMMU group that a link leads to, and -1
// if there is no such group.
func (d *deviceReader) linkGroup(path string) int {
	name, ok := d.link(path)
	if !ok {
		return -1
	}
	group, ok := decimal(name)
	if !ok {
		d.note(path, "it leads to %.80q, which is not the number of a group", name)
		return -1
	}
	if !d.groups[group] {
		d.note(path, "there is no IOMMU group %d", group)
		return -1
	}
	return group
}

// node reads a NUMA node's number; -1: unknown, or there is no such node.
func (d *deviceReader) node(path string) int {
	node := d.within(path, -1, math.MaxInt32, -1)
	if node < 0 || slices.ContainsFunc(d.h.Nodes, func(n Node) bool { return n.ID == node }) {
		return node
	}
	d.note(path, "there is no NUMA node %d", node)
	return -1
}

// cpus reads a list of CPUs and keeps the existing ones. Devices on one node
// share theirs.
func (d *deviceReader) cpus(path string) IDList {
	text, ok := d.text(path)
	if !ok {
		return IDList{}
	}
	if list, ok := d.near[text]; ok {
		return list
	}
	all, ok := d.parseList(path, text)
	if !ok {
		return IDList{}
	}
	known := IDList{}
	for _, id := range all {
		if d.h.byID(id) != nil {
			known = append(known, id)
		}
	}
	if len(known) < len(all) {
		d.note(path, "%d of its CPUs are not there", len(all)-len(known))
	}
	d.near[text] = known
	return known
}

// saying reads what a device says in words, made printable and bounded.
func (d *deviceReader) saying(path string) string {
	text, _ := d.text(path)
	return printable(text)
}

// printable replaces what would upset a terminal, white space by one space, and
// cuts what is longer than maxSaying.
func printable(text string) string {
	var b strings.Builder
	space := false
	for _, c := range text {
		// A space, a character of at most 4 bytes and the ellipsis of 3 must fit.
		if b.Len() > maxSaying-8 {
			return b.String() + "…"
		}
		if unicode.IsSpace(c) {
			space = b.Len() > 0
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		if !unicode.IsPrint(c) {
			c = unicode.ReplacementChar
		}
		b.WriteRune(c)
	}
	return b.String()
}

// isWord reports whether a name can be printed and be a path's element.
func isWord(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxWord &&
		!strings.ContainsFunc(name, func(c rune) bool {
			return c == '/' || c == unicode.ReplacementChar || unicode.IsSpace(c) || !unicode.IsPrint(c)
		})
}

// decimal reads a number as the kernel writes it: no sign, no zeros before it.
func decimal(text string) (int, bool) {
	if text == "" || text[0] < '0' || text[0] > '9' || (text[0] == '0' && len(text) > 1) {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

// numberedAs reports whether a name is a prefix and a number: "vfio0".
func numberedAs(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	if ok {
		_, ok = decimal(digits)
	}
	return ok
}

// pciFunction is a device while it is put together with the others.
type pciFunction struct {
	PCIDevice
	address PCIAddress
	dir     string
	// children are the functions whose folders are in this one's, virtual those
	// that its virtfn links lead to; both as the names say, not checked.
	children []PCIAddress
	virtual  []PCIAddress
	// above is the bridge that it is attached to.
	above *pciFunction
	// grouped, isVirtual and mediates: there is a link iommu_group or physfn, a
	// folder mdev_supported_types.
	grouped, isVirtual, mediates bool
	// leavesDMA: see the function.
	leavesDMA bool
}
