package driver

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// alreadyLocked is what the VMM says of a disk on which another has a lock.
const alreadyLocked = "already locked"

// explain adds to a refusal which file it is about, and what to do: the VMM knows its
// files by their descriptors alone. The words are those of v53's vmm/src/vm.rs and
// block/src/fcntl.rs; with others an error stays as it is.
func (m *machine) explain(err error) error {
	var refused *chapi.Error
	if !errors.As(err, &refused) {
		return err
	}
	if payload := m.vm.Config.Payload; payload != nil && payload.Kernel != "" && blames(refused, "Cannot load the kernel") {
		f := m.file(payload.Kernel)
		return contract.InField(f.Field, contract.Errorf("%s: want an ELF file with a PVH entry or a bzImage, arm64 an Image, and a %s into which it fits: %w",
			contract.ObjectName(f.Path), contract.FieldName("memory.size"), err))
	}
	if !blames(refused, alreadyLocked) {
		return err
	}
	for _, d := range m.vm.Config.Disks {
		// The path is a cause's end, or the next one follows it.
		ends := func(cause string) bool {
			return strings.HasSuffix(cause, " "+d.Path) || strings.Contains(cause, " "+d.Path+":")
		}
		if slices.ContainsFunc(refused.Causes, ends) {
			return inUse(m.file(d.Path), err)
		}
	}
	return err
}

// inUse says what keeps a disk's lock from being had.
func inUse(f plan.File, err error) error {
	return contract.InField(f.Field, contract.Errorf("%s: another VM or program uses it, or the specification lists it twice: %w", contract.ObjectName(f.Path), err))
}

func blames(refused *chapi.Error, words string) bool {
	return slices.ContainsFunc(refused.Causes, func(cause string) bool { return strings.Contains(cause, words) })
}

// file is what the VMM knows as /proc/self/fd/N.
func (m *machine) file(path string) plan.File {
	digits, ok := strings.CutPrefix(path, "/proc/self/fd/")
	if !ok {
		return plan.File{Path: path}
	}
	n, err := strconv.Atoi(digits)
	if n -= plan.FirstFile; err != nil || n < 0 || n >= len(m.link.Plan.Files) {
		return plan.File{Path: path}
	}
	return m.link.Plan.Files[n]
}
