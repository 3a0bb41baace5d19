package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/suites"
)

// leftovers are what an ended agent, without VMs, has not taken back. Of one that
// runs they are what it has for itself, but for its process.
func (n *node) leftovers() []string {
	var left []string
	for pid, what := range n.processes() {
		if n.alive() && pid == n.cmd.Process.Pid {
			continue
		}
		left = append(left, fmt.Sprintf("process %d, %s", pid, what))
	}
	for _, m := range n.mounts() {
		left = append(left, "mount "+m)
	}
	for _, c := range n.cgroups() {
		left = append(left, "cgroup "+c)
	}
	if n.mayUse("/dev/kvm") {
		left = append(left, "access to /dev/kvm for a user of a VM")
	}
	return append(left, n.files()...)
}

// processes are those whose command line has the node's folder, and those of
// its VMs' users.
func (n *node) processes() map[int]string {
	found := make(map[int]string)
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(folder + "/cmdline")
		st, errStat := os.Stat(folder)
		if err != nil || errStat != nil || len(cmdline) == 0 {
			continue // ended meanwhile, or a zombie
		}
		what := strings.ReplaceAll(string(cmdline), "\x00", " ")
		if strings.Contains(what, n.dir+"/") || n.ownUID(st.Sys().(*syscall.Stat_t).Uid) && !n.anothers(folder) {
			found[pid] = what
		}
	}
	return found
}

// anothers says whether a process is in the cgroup of another node's VM: tests of another
// process may have the same user ids.
func (n *node) anothers(folder string) bool {
	cgroup, err := os.ReadFile(folder + "/cgroup")
	return err == nil && strings.Contains(string(cgroup), "/vmlet-e2e-") && !strings.Contains(string(cgroup), n.cgroup+"/")
}

func (n *node) ownUID(uid uint32) bool { return uid >= n.firstUID && uid < n.firstUID+uidsPerNode }

func (n *node) mounts() []string {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], n.dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}

// cgroups are those of VMs; the parent of all stays.
func (n *node) cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*" + n.cgroup + "/*", "/sys/fs/cgroup" + n.cgroup + "/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			if st, err := os.Stat(p); err == nil && st.IsDir() {
				found = append(found, p)
			}
		}
	}
	return found
}

// mayUse says whether a device's access control list has a user of a VM
// (linux/posix_acl_xattr.h: a version, then entries of tag, rights and id).
func (n *node) mayUse(device string) bool {
	list := make([]byte, 4096)
	size, err := unix.Getxattr(device, "system.posix_acl_access", list)
	if err != nil {
		return false
	}
	const user = 0x02 // ACL_USER
	for entry := range slices.Chunk(list[4:max(size, 4)], 8) {
		if binary.LittleEndian.Uint16(entry) == user && n.ownUID(binary.LittleEndian.Uint32(entry[4:])) {
			return true
		}
	}
	return false
}

// files are sockets anywhere, and all that is left in the run folder but the
// agent's lock and empty folders.
func (n *node) files() []string {
	var found []string
	err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
		case d.Type()&fs.ModeSocket != 0:
			found = append(found, "socket "+path)
		case strings.HasPrefix(path, n.path("run")+"/") && d.Name() != "agent.lock":
			found = append(found, "file "+path)
		case strings.HasPrefix(path, n.path("state", "vms")+"/"):
			found = append(found, "file "+path)
		}
		return nil
	})
	if err != nil {
		found = append(found, err.Error())
	}
	return found
}

// sweep removes everything, also after a test that went wrong.
func (n *node) sweep() {
	ctx, cancel := suites.Wait(context.Background(), n.t, patience)
	defer cancel()
	for pid := range n.processes() {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			// Nothing can be removed from under it.
			_ = gone(ctx, fd)
			_ = unix.Close(fd)
		}
	}
	for _, m := range n.mounts() {
		_ = unix.Unmount(m, unix.MNT_DETACH)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*" + n.cgroup, "/sys/fs/cgroup" + n.cgroup} {
		parents, _ := filepath.Glob(pattern)
		for _, p := range parents {
			children, _ := filepath.Glob(p + "/*")
			for _, path := range append(children, p) {
				_ = os.Remove(path) // control files can't be, and go with the folder
			}
		}
	}
	_ = os.RemoveAll(n.dir)
}
