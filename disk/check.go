package disk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vmlet/vmlet/contract"
)

// Image names one file of a disk and what it is said to be.
type Image struct {
	Path   string
	Format Format
}

// Expectation is what a VM's specification says of an image.
type Expectation struct {
	// Field is where the specification says so, for messages: "disks[0].path".
	Field string
	Image
	// Backing lists the files that the image lies over, nearest first; empty for an image that must stand alone.
	Backing []Image
	// DataFile is the external data file's path, a raw image; empty for an image that must hold its own data.
	DataFile string
}

// Below is the expectation for the nearest backing file, which the caller opens, probes and checks in turn; false at the chain's end.
func (e Expectation) Below() (Expectation, bool) {
	if len(e.Backing) == 0 {
		return Expectation{}, false
	}
	return Expectation{Field: e.Field, Image: e.Backing[0], Backing: e.Backing[1:]}, true
}

// Fault is one thing about an image that isn't as it was said to be, or that no VM may be started with.
type Fault struct {
	// Field and Path are the Expectation's.
	Field, Path string
	// Problem says what was found and what to do.
	Problem string
}

func (f *Fault) Error() string { return fmt.Sprintf("%s: %s: %s", f.Field, f.Path, f.Problem) }

// Faults are the error in parts (contract.FaultsOf).
func (f *Fault) Faults() []contract.Fault {
	return []contract.Fault{{Field: f.Field, Object: f.Path, Text: f.Path + ": " + f.Problem}}
}

// Check compares what Probe found with what was said. The error joins a *Fault for each difference. Names in the header are only
// compared: a VMM has to be given each file that was named, opened by the caller, and must not follow the header's names itself.
func Check(info Info, want Expectation) error {
	c := checker{want: want}
	c.format(info)
	if info.Header != nil && want.Format == QCOW2 {
		c.state(info.Header)
		c.backing(info.Header)
		c.dataFile(info.Header)
	}
	return errors.Join(c.faults...)
}

type checker struct {
	want   Expectation
	faults []error
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, &Fault{Field: c.want.Field, Path: c.want.Path, Problem: fmt.Sprintf(format, args...)})
}

func (c *checker) format(info Info) {
	want := c.want.Format
	switch {
	case want != Raw && want != QCOW2:
		c.fault("format %q can't be given to a VM: use raw or qcow2 (qemu-img convert makes them)", want)
	case want == Raw && info.Format == LUKS:
		// A guest that encrypts its whole disk leaves exactly this; as raw it is its own affair.
	case info.Format == Raw && want != Raw:
		c.fault("it is said to be %s and has no such header: if it is a raw disk, say format: raw", want)
	case info.Format == want:
	case info.Format == QCOW2:
		c.fault("it is said to be %s and has the header of %s: say format: qcow2 if that is right; a guest can write a foreign header into a raw disk to reach other files",
			want, info.Format)
	default:
		c.fault("it is said to be %s and has the header of %s, which can't be given to a VM: convert it (qemu-img convert -O qcow2)",
			want, info.Format)
	}
	if want == Raw && (len(c.want.Backing) > 0 || c.want.DataFile != "") {
		c.fault("a raw image has no backing file and no data file: don't name any")
	}
}

func (c *checker) state(h *Header) {
	if h.Corrupt {
		c.fault("it is marked corrupt: repair a copy of it with qemu-img check -r all")
	}
	if h.Encryption != "" {
		c.fault("it is encrypted (%s), which isn't supported: convert it with qemu-img convert", h.Encryption)
	}
	if h.UnknownFeatures != 0 {
		c.fault("it needs features that aren't known here (incompatible_features %#x)", h.UnknownFeatures)
	}
}

func (c *checker) backing(h *Header) {
	if h.BackingFile == "" {
		if len(c.want.Backing) > 0 {
			c.fault("it has no backing file, and %s was named as one", c.want.Backing[0].Path)
		}
		return
	}
	if len(c.want.Backing) == 0 {
		c.fault("it lies over %q, which wasn't named: name it as backing file, or flatten the image (qemu-img convert)", h.BackingFile)
		return
	}
	named := c.want.Backing[0]
	if !c.same(h.BackingFile, named.Path) {
		c.fault("it lies over %q, and %s was named as its backing file", h.BackingFile, named.Path)
	}
	if h.BackingFormat != "" && h.BackingFormat != string(named.Format) {
		c.fault("it says that its backing file %s is %q, and %s was named", named.Path, h.BackingFormat, named.Format)
	}
}

func (c *checker) dataFile(h *Header) {
	switch {
	case !h.ExternalData && c.want.DataFile != "":
		c.fault("it holds its own data, and %s was named as its data file", c.want.DataFile)
	case !h.ExternalData:
	case c.want.DataFile == "":
		c.fault("its data is in another file, %q, which wasn't named: name it as data file, or convert the image (qemu-img convert)", h.DataFile)
	case h.DataFile != "" && !c.same(h.DataFile, c.want.DataFile):
		c.fault("its data is in %q, and %s was named as its data file", h.DataFile, c.want.DataFile)
	}
}

// same reports whether a name in the header stands for a path that was named. Like QEMU it takes the name relative to the image's
// folder. A name that QEMU would take for a protocol ("nbd:", "json:", "file:") never matches: a colon before the first slash.
func (c *checker) same(inHeader, named string) bool {
	first, _, _ := strings.Cut(inHeader, "/")
	if strings.Contains(first, ":") {
		return false
	}
	if !filepath.IsAbs(inHeader) {
		inHeader = filepath.Join(filepath.Dir(c.want.Path), inHeader)
	}
	return filepath.Clean(inHeader) == filepath.Clean(named)
}
