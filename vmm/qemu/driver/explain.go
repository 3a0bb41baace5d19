package driver

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

var _ control.Explainer = QEMU{}

// Explain implements control.Explainer. The words are those of QEMU 7.2 to 10
// (hw/i386/x86.c, x86-common.c; hw/arm/boot.c; block/file-posix.c); others stay as they are.
func (QEMU) Explain(p *plan.Plan, words string) (string, *shim.Error) {
	has := func(oneOf ...string) bool {
		return slices.ContainsFunc(oneOf, func(part string) bool { return strings.Contains(words, part) })
	}
	switch {
	case lockRefused(words):
		if file, found := lockedFile(p, words); found {
			return readable(p, words), inUse(file)
		}
	case has("invalid kernel header", "without PVH ELF Note", "could not load kernel", "could not open kernel file"):
		return readable(p, words), blame(p, "boot.kernel.path", errors.New("QEMU can't boot it: want a bzImage or an ELF file with a PVH entry, on arm64 an Image"))
	case has("Could not set up host forwarding rule"):
		return readable(p, words), forwardRefused(words)
	case has("initrd is too large", "error reading initrd", "could not load initrd"):
		return readable(p, words), blame(p, "boot.kernel.initrd", contract.Errorf("does it fit into the guest's memory? %s says how much that is", contract.FieldName("memory.size")))
	}
	return readable(p, words), nil
}

// lockRefused: another has a lock on a disk. It is a "write" lock, or a shared "write"
// lock, or one of another program's over all of the file.
func lockRefused(words string) bool {
	return strings.Contains(words, `"write" lock`) || strings.Contains(words, "Failed to lock byte")
}

// inUse says what keeps a disk's lock from being had.
func inUse(file plan.File) *shim.Error {
	return fault.New(shim.CodePrecondition, file.Field, "%s: another process has it open, most likely another VM: end that first%s",
		contract.ObjectName(file.Path), contract.Advice("fuser -v "+file.Path+" names it"))
}

// forwardRefused names the port in "... forwarding rule 'tcp:127.0.0.1:2222-:22'".
func forwardRefused(words string) *shim.Error {
	_, rule, _ := strings.Cut(words, "forwarding rule '")
	port, _, _ := strings.Cut(rule, "-")
	return fault.New(shim.CodePrecondition, "networks", "port %s of the node can't be listened on: another program has that port%s, or the address is none of this machine's",
		port, contract.Advice("ss -lntup names it"))
}

// blame is a fault in the file of a field; nil: the plan has none.
func blame(p *plan.Plan, field string, message error) *shim.Error {
	for _, f := range p.Files {
		if f.Field == field {
			return fault.New(shim.CodeInvalid, field, "%s: %w", contract.ObjectName(f.Path), message)
		}
	}
	return nil
}

// lockedFile is the one in "Is another process using the image [/dev/fdset/N]?".
func lockedFile(p *plan.Plan, words string) (plan.File, bool) {
	_, rest, _ := strings.Cut(words, "using the image ["+fdsetPrefix)
	return fileOf(p, leadingDigits(rest))
}

// fileOf is the file of a descriptor; the planner gives a set the same number.
func fileOf(p *plan.Plan, digits string) (plan.File, bool) {
	n, err := strconv.Atoi(digits)
	if n -= plan.FirstFile; err != nil || n < 0 || n >= len(p.Files) {
		return plan.File{}, false
	}
	return p.Files[n], true
}

func leadingDigits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

// withoutArgument leaves out of a line the argument of QEMU's own which it names before a fault: the plan's,
// not the user's. By hand, as regexp would be in every VM's shim for this alone, with a quarter of a MiB.
func withoutArgument(line string) string {
	program, rest, found := strings.Cut(line, ": -")
	option, rest, has := strings.Cut(rest, " ")
	if !found || !has || !strings.Contains(program, "qemu") || strings.Contains(program, " ") || strings.Trim(option, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return line
	}
	end := ": "
	if strings.HasPrefix(rest, "{") {
		end = "}: "
	}
	argument, fault, ends := strings.Cut(rest, end)
	if !ends || end == ": " && strings.Contains(argument, " ") {
		return line
	}
	return program + ": " + fault
}

// readable has the plan's files by their names, where QEMU has their descriptors, and no argument of QEMU's.
func readable(p *plan.Plan, words string) string {
	lines := strings.Split(words, "\n")
	for i, line := range lines {
		lines[i] = withoutArgument(line)
	}
	words = strings.Join(lines, "\n")
	for _, prefix := range []string{fdsetPrefix, "/proc/self/fd/", "/dev/fd/"} {
		var out strings.Builder
		before, rest, found := strings.Cut(words, prefix)
		for ; found; before, rest, found = strings.Cut(rest, prefix) {
			out.WriteString(before)
			digits := leadingDigits(rest)
			if f, ok := fileOf(p, digits); ok && f.Path != "" {
				out.WriteString(f.Path)
				rest = rest[len(digits):]
			} else {
				out.WriteString(prefix)
			}
		}
		words = out.String() + before
	}
	return words
}
