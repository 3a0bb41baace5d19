package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/posixacl"
)

// Options say how a Host is set up.
type Options struct {
	// FirstUser and Users are the range of user ids for VMs.
	FirstUser, Users uint32
	// RAMDir is where the tmpfs for guest RAM is mounted; RAMSize and RAMHuge
	// are its options.
	RAMDir, RAMSize, RAMHuge string
	// HugePages are folders on hugetlbfs by page size in bytes, to be used
	// instead of those that are found.
	HugePages map[uint64]string
	// Instance tells this agent from others on the machine: it ends the name of
	// its cgroup and says at which user id it begins. Empty for the machine's own.
	Instance string
	// CgroupParent and CgroupRequired: see NewCgroups; a machine without
	// cgroups is an error only if they are required.
	CgroupParent   string
	CgroupRequired bool
	// PodsOnly: no VM is the node's own. Nothing is mounted and no cgroup made.
	PodsOnly bool
	Log      *slog.Logger
}

// Host is this machine. Its methods may be called concurrently.
type Host struct {
	Devices
	users     *Users
	ram       *RAM    // nil: no VM is the node's own
	cgroups   Cgroups // nil: the machine has none
	hugePages map[uint64]string
	required  bool
	log       *slog.Logger
}

// New prepares the machine: the mount for RAM, the parent of the cgroups.
func New(o Options) (*Host, error) {
	folder := "vmlet"
	if o.Instance != "" {
		folder += "-" + o.Instance
	}
	h := &Host{users: NewUsers(o.FirstUser, o.Users, o.Instance), hugePages: o.HugePages, required: o.CgroupRequired, log: o.Log}
	if o.PodsOnly {
		return h, nil
	}
	if err := SpareFromOOM("/proc/self"); err != nil {
		h.log.Debug("where memory runs out the kernel may kill the agent like a VM", "error", err)
	}
	var err error
	if h.cgroups, err = NewCgroups(o.CgroupParent, folder, o.Log); err != nil {
		if o.CgroupRequired {
			return nil, err
		}
		h.log.Warn("VMs get no cgroups of their own", "error", err)
	}
	if h.ram, err = MountRAM(o.RAMDir, o.RAMSize, o.RAMHuge, o.Log); err != nil {
		return nil, err
	}
	return h, nil
}

// TakeUser gives a VM a user id that no other has.
func (h *Host) TakeUser(vm string) (uint32, error) { return h.users.Take(vm) }

// ClaimUser notes the user id of a VM that runs already.
func (h *Host) ClaimUser(uid uint32, vm string) error { return h.users.Claim(uid, vm) }

// ReleaseUser takes a user id back from a VM.
func (h *Host) ReleaseUser(uid uint32, vm string) { h.users.Release(uid, vm) }

// PlanCgroup says where a VM's cgroup will be. grace is how long its guest may take
// to shut down.
func (h *Host) PlanCgroup(vm string, grace time.Duration) Cgroup {
	if h.cgroups == nil {
		return Cgroup{}
	}
	c := h.cgroups.Plan(vm)
	c.Grace = grace
	return c
}

// MakeCgroup makes it. What can't be made is a warning in the log, unless
// cgroups are required.
func (h *Host) MakeCgroup(c Cgroup) error {
	return h.cgroup(c, "the VM has no cgroup of its own", func() error { return h.cgroups.Make(c) })
}

// StartInCgroup calls start, once, with what makes the process that it starts begin in
// the cgroup, and reports whether it is there, with all that it will start. Errors of the
// cgroup are as MakeCgroup's; the process may run in spite of one.
func (h *Host) StartInCgroup(c Cgroup, start func(*syscall.SysProcAttr) (pid int, err error)) (joined bool, err error) {
	onSpoiltThread(func() { joined, err = h.startInCgroup(c, start) })
	return joined, err
}

func (h *Host) startInCgroup(c Cgroup, start func(*syscall.SysProcAttr) (int, error)) (joined bool, err error) {
	attr, join := new(syscall.SysProcAttr), func(int) error { return nil }
	try := func(do func() error) error {
		return h.cgroup(c, "the VM is not in its cgroup", func() error {
			err := do()
			joined = err == nil
			return err
		})
	}
	err = try(func() error {
		then, err := h.cgroups.Enter(c, attr)
		if err == nil {
			join = then
		}
		return err
	})
	if err != nil {
		return false, err
	}
	entered := joined
	pid, err := start(attr)
	if errJoin := try(func() error { return join(pid) }); err == nil {
		err = errJoin
	}
	return entered && joined && err == nil, err
}

func (h *Host) cgroup(c Cgroup, warning string, do func() error) error {
	if h.cgroups == nil {
		return nil
	}
	err := do()
	if err != nil && !h.required {
		h.log.Warn(warning, "cgroup", c.Path(), "error", err)
		return nil
	}
	return err
}

// RemoveCgroup deletes it. That a process is still in it is an error.
func (h *Host) RemoveCgroup(c Cgroup) error {
	if h.cgroups == nil {
		return nil
	}
	return h.cgroups.Remove(c)
}

// GrantDevice lets a user open a device; see Devices.Grant.
func (h *Host) GrantDevice(path string, uid uint32) (bool, error) { return h.Devices.Grant(path, uid) }

// RevokeDevice takes that back.
func (h *Host) RevokeDevice(path string, uid uint32) error { return h.Devices.Revoke(path, uid) }

// RevokeFile takes back what a VM's shim, which may have been killed, has given a user
// on a file. That the file is gone is no error. Other shims may be changing the same
// list: lock, a file or folder, is locked meanwhile.
func (h *Host) RevokeFile(path, lock string, uid uint32) error {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		revoke := func() error { return posixacl.Revoke(real, uid) }
		if err = posixacl.Exclusively(lock, revoke); errors.Is(err, fs.ErrNotExist) {
			err = revoke() // what is locked has gone, and so have the others who would
		}
	}
	// The last: something else is mounted there now, without access lists.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// OpenTap opens a tap; see OpenTap.
func (h *Host) OpenTap(r TapRequest) (*os.File, string, error) { return OpenTap(r) }

// RemoveTaps deletes those that were made for an owner; see RemoveTaps.
func (h *Host) RemoveTaps(owner string) error { return RemoveTaps(owner) }

// NoteTap reads whose a tap of the administrator's is; see NoteTap.
func (h *Host) NoteTap(device string) (TapNote, error) { return NoteTap(device) }

// RestoreTap puts that back. That the tap is gone is a warning in the log: somebody has to
// make it, and a VM that needs it says so.
func (h *Host) RestoreTap(n TapNote) error {
	err := RestoreTap(n)
	if isNotFound(err) {
		h.log.Warn("a tap that a VM uses is gone: its next start fails unless somebody creates it", "tap", n.Device)
		return nil
	}
	return err
}

// MemoryPath is where a VM's RAM file is made. pageSize is in bytes, 0 for
// ordinary pages; huge pages need a hugetlbfs of that size.
func (h *Host) MemoryPath(vm, id string, pageSize uint64) (string, error) {
	if h.ram == nil {
		return "", errors.New("this agent has no place for the RAM of the node's own VMs: it runs those of pods")
	}
	if pageSize == 0 {
		return h.ram.Path(vm), nil
	}
	dir, ok := h.hugePages[pageSize]
	if !ok {
		found, err := mountedHugePages()
		if err != nil {
			return "", err
		}
		if dir, ok = found[pageSize]; !ok {
			return "", fmt.Errorf("no hugetlbfs with pages of %d bytes is mounted: mount -t hugetlbfs -o pagesize=%d none /dev/hugepages, and reserve pages in /sys/kernel/mm/hugepages", pageSize, pageSize)
		}
	}
	return filepath.Join(dir, "vmlet-"+id+"-"+vm), nil
}

func mountedHugePages() (map[uint64]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return HugePageMounts(f)
}

// MemoryRoom is the size of the tmpfs for RAM, in bytes.
func (h *Host) MemoryRoom() uint64 {
	if h.ram == nil {
		return 0
	}
	return h.ram.Room()
}

// MemoryUsage is the size of the tmpfs for RAM and what is taken of it, in bytes.
// False: it is not known.
func (h *Host) MemoryUsage() (size, used uint64, ok bool) {
	if h.ram == nil {
		return 0, 0, false
	}
	return h.ram.Usage()
}

// RemoveMemory deletes a RAM file, if it is there.
func (h *Host) RemoveMemory(path string) error {
	if path == "" {
		return nil
	}
	return removeIfThere(path)
}

// Sweep takes back RAM files and cgroups that no VM has, and names their VMs.
func (h *Host) Sweep(keep func(vm string) bool) ([]string, error) {
	if h.ram == nil {
		return nil, nil
	}
	swept, err := h.ram.Sweep(keep)
	if h.cgroups == nil {
		return swept, err
	}
	groups, errGroups := h.cgroups.Sweep(keep)
	return append(swept, groups...), errors.Join(err, errGroups)
}

// Close unmounts what RAM is in, if no VM's is.
func (h *Host) Close() error {
	if h.cgroups != nil {
		h.cgroups.Close()
	}
	if h.ram == nil {
		return nil
	}
	_, err := h.ram.Unmount()
	return err
}
