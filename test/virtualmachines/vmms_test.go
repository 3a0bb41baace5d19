package virtualmachines_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// vmmProcess is a VMM of any kind, as this machine's /proc has it: of it neither vmlet nor Kubernetes says anything.
type vmmProcess struct {
	pid     int
	program string
	// uuid is the guest's, which a VM has for its life; empty where the command line does not say.
	uuid   string
	writes []inode
	// shares: a disk of its guest is shareable.
	shares bool
}

func (p vmmProcess) String() string { return fmt.Sprintf("%s (process %d)", p.program, p.pid) }

// inode is a file, or the device or file below a loop device.
type inode struct{ device, number uint64 }

// vmmsIn are the VMMs in and below a cgroup.
func vmmsIn(cgroup string) (found []vmmProcess) {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range all {
		exe, err := os.Readlink(dir + "/exe")
		program := filepath.Base(exe)
		if err != nil || !isVMM(program) {
			continue
		}
		places, err := os.ReadFile(dir + "/cgroup")
		if err != nil || !strings.Contains(string(places), cgroup) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(dir + "/cmdline") // empty: it has ended
		found = append(found, vmmProcess{
			pid: pid, program: program, uuid: uuidOf(string(line)), writes: writtenBy(dir), shares: strings.Contains(string(line), "share-rw"),
		})
	}
	return found
}

func isVMM(program string) bool {
	return strings.HasPrefix(program, "qemu-system-") || strings.HasPrefix(program, "cloud-hypervisor")
}

func uuidOf(commandLine string) string {
	args := strings.Split(commandLine, "\x00")
	if i := slices.Index(args, "-uuid"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// writtenBy are the files and block devices that a process has open to write to.
func writtenBy(process string) (found []inode) {
	open, _ := filepath.Glob(process + "/fd/*")
	for _, fd := range open {
		about, err := os.ReadFile(process + "/fdinfo/" + filepath.Base(fd))
		if err != nil || !opensToWrite(string(about)) {
			continue
		}
		if of, ok := inodeOf(fd); ok && !slices.Contains(found, of) {
			found = append(found, of)
		}
	}
	return found
}

// opensToWrite reads what fdinfo says of a descriptor.
func opensToWrite(about string) bool {
	for line := range strings.Lines(about) {
		if text, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(text), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY && flags&unix.O_PATH == 0
		}
	}
	return false
}

// inodeOf is a regular file or a block device, below all loop devices.
func inodeOf(path string) (inode, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return inode{}, false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return inode{st.Dev, st.Ino}, true
	case unix.S_IFBLK:
		return below(st.Rdev), true
	}
	return inode{}, false
}

// below is what a loop device is over: of any other device that device.
func below(device uint64) inode {
	const loop = 7
	for unix.Major(device) == loop {
		file, err := os.Open(fmt.Sprintf("/dev/loop%d", unix.Minor(device)))
		if err != nil {
			break
		}
		info, err := unix.IoctlLoopGetStatus64(int(file.Fd()))
		file.Close()
		if err != nil {
			break // it is over nothing any more
		}
		if info.Rdevice == 0 {
			return inode{info.Device, info.Inode}
		}
		device = info.Rdevice
	}
	return inode{device: device}
}

// runTwice says which guests have two VMMs, and which files two VMMs write to, unless both have shareable disks.
func runTwice(all []vmmProcess) (faults []string) {
	guests, files, alone := make(map[string][]string), make(map[inode][]string), make(map[inode]bool)
	for _, p := range all {
		if p.uuid != "" {
			guests[p.uuid] = append(guests[p.uuid], p.String())
		}
		for _, f := range p.writes {
			files[f] = append(files[f], p.String())
			alone[f] = alone[f] || !p.shares
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(guests)) {
		if by := guests[uuid]; len(by) > 1 {
			faults = append(faults, fmt.Sprintf("the guest %s runs %d times at once: %s", uuid, len(by), strings.Join(by, ", ")))
		}
	}
	for f, by := range files {
		if len(by) > 1 && alone[f] {
			faults = append(faults, fmt.Sprintf("the file %d of device %d has %d writers at once: %s", f.number, f.device, len(by), strings.Join(by, ", ")))
		}
	}
	return faults
}

// writersOf are the VMMs that may write to a file.
func writersOf(all []vmmProcess, file inode) (pids []int) {
	for _, p := range all {
		if slices.Contains(p.writes, file) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func TestRunTwice(t *testing.T) {
	disk, other := inode{1, 2}, inode{1, 3}
	for name, c := range map[string]struct {
		all  []vmmProcess
		want []string
	}{
		"nothing runs": {},
		"two guests": {all: []vmmProcess{
			{pid: 1, program: "qemu-system-x86_64", uuid: "a", writes: []inode{disk}},
			{pid: 2, program: "cloud-hypervisor", writes: []inode{other}},
			{pid: 3, program: "cloud-hypervisor"},
		}},
		"a guest twice": {all: []vmmProcess{
			{pid: 1, program: "qemu-system-x86_64", uuid: "a", writes: []inode{disk}},
			{pid: 2, program: "qemu-system-x86_64", uuid: "a", writes: []inode{other}},
		}, want: []string{"the guest a runs 2 times at once: qemu-system-x86_64 (process 1), qemu-system-x86_64 (process 2)"}},
		"a disk twice, by VMMs of two kinds": {all: []vmmProcess{
			{pid: 1, program: "qemu-system-x86_64", uuid: "a", writes: []inode{disk}},
			{pid: 2, program: "cloud-hypervisor", writes: []inode{other, disk}},
		}, want: []string{"the file 2 of device 1 has 2 writers at once: qemu-system-x86_64 (process 1), cloud-hypervisor (process 2)"}},
		"a shareable disk": {all: []vmmProcess{
			{pid: 1, program: "qemu-system-x86_64", uuid: "a", writes: []inode{disk}, shares: true},
			{pid: 2, program: "qemu-system-x86_64", uuid: "b", writes: []inode{disk}, shares: true},
		}},
		"a shareable disk, and a VMM that does not share it": {all: []vmmProcess{
			{pid: 1, program: "qemu-system-x86_64", uuid: "a", writes: []inode{disk}, shares: true},
			{pid: 2, program: "qemu-system-x86_64", uuid: "b", writes: []inode{disk}},
		}, want: []string{"the file 2 of device 1 has 2 writers at once: qemu-system-x86_64 (process 1), qemu-system-x86_64 (process 2)"}},
	} {
		if got := runTwice(c.all); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestOpensToWrite(t *testing.T) {
	for about, want := range map[string]bool{
		"pos:\t0\nflags:\t0100000\nmnt_id:\t1\n":  false,
		"pos:\t0\nflags:\t0100001\nmnt_id:\t1\n":  true,
		"pos:\t0\nflags:\t02140002\nmnt_id:\t1\n": true,
		"pos:\t0\nflags:\t012000002\n":            false, // O_PATH
		"":                                        false,
	} {
		if got := opensToWrite(about); got != want {
			t.Errorf("a descriptor with %q is open to write to: got %t, want %t", about, got, want)
		}
	}
}
