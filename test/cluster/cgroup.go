package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/suites"
)

// hierarchy is a mounted tree of cgroups.
type hierarchy struct {
	path    string
	unified bool // cgroup v2
	alone   bool // and there is none of v1
	cpuset  bool // of v1, which wants CPUs before processes
}

// hierarchies are all that there are: version 2, version 1, or both at once.
func hierarchies() ([]hierarchy, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return hierarchiesOf(file)
}

// hierarchiesOf reads mountinfo(5). One that is mounted at several places, as by somebody's chroot, counts once.
func hierarchiesOf(mounts io.Reader) ([]hierarchy, error) {
	var found []hierarchy
	devices := make(map[string]bool)
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// ID parent device root point options [optional] - type source super
		before, after, _ := strings.Cut(lines.Text(), " - ")
		mount, fstype := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(fstype) < 3 || !strings.HasPrefix(fstype[0], "cgroup") || devices[mount[2]] {
			continue
		}
		devices[mount[2]] = true
		found = append(found, hierarchy{
			path: mount[4], unified: fstype[0] == "cgroup2",
			cpuset: fstype[0] == "cgroup" && slices.Contains(strings.Split(fstype[2], ","), "cpuset"),
		})
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroups are mounted: the kubelet needs them")
	}
	found[0].alone = len(found) == 1 && found[0].unified
	return found, nil
}

// system is the cgroup, in the cluster's own, that its programs are in. With
// cgroup v2 none may be where there are cgroups below.
const system = "system"

// enterCgroup makes the cluster's cgroup in all hierarchies and puts a process
// into it, whose children follow.
func enterCgroup(name string, pid int) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		own := filepath.Join(h.path, name)
		for _, dir := range []string{own, filepath.Join(own, system)} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			if err := h.prepare(dir); err != nil {
				return err
			}
		}
		procs := filepath.Join(own, system, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("moving the node's first process: %w", err)
		}
	}
	return nil
}

// wanted are the controllers that the kubelet asks for with cgroup v2.
var wanted = []string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}

// prepare makes a new cgroup fit for processes, or for controllers below it.
// What is handed down at the root stays so, as systemd has it anyway.
func (h hierarchy) prepare(dir string) error {
	parent := filepath.Dir(dir)
	if h.alone {
		controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, controller := range strings.Fields(string(controllers)) {
			if !slices.Contains(wanted, controller) {
				continue
			}
			if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
				return fmt.Errorf("handing the controller %s to cgroups below: %w", controller, err)
			}
		}
		return nil
	}
	if !h.cpuset {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		content, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0); err != nil {
			return err
		}
	}
	return nil
}

// freezeCgroup has what is in a cgroup and those below it stand still, or go on.
func freezeCgroup(name string, frozen bool) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, freezer := range []struct{ file, freeze, thaw, state, is string }{
		{"freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"},
		{"cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"},
	} {
		for _, h := range all {
			file := filepath.Join(h.path, name, freezer.file)
			if _, err := os.Stat(file); err != nil {
				continue
			}
			if !frozen {
				return os.WriteFile(file, []byte(freezer.thaw), 0)
			}
			if err := os.WriteFile(file, []byte(freezer.freeze), 0); err != nil {
				return err
			}
			return becomes(filepath.Join(h.path, name, freezer.state), freezer.is)
		}
	}
	if !frozen {
		return nil // nothing can have been
	}
	return errors.New("no freezer of cgroups is mounted: a node can't be frozen")
}

// becomes waits until a file has a text.
func becomes(file, text string) error {
	ctx, cancel := suites.Patience(context.Background(), patience)
	defer cancel()
	for {
		content, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(content), text) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not say %s: %w", file, text, context.Cause(ctx))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeCgroup ends whatever is in a cluster's cgroup and removes it.
func removeCgroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	thawNodes(all, name)
	ctx, cancel := suites.Patience(context.Background(), patience)
	defer cancel()
	for _, h := range all {
		root := filepath.Join(h.path, name)
		for {
			err := removeTree(root)
			if err == nil {
				break
			}
			// It takes the kernel a moment to let go of what has ended.
			if ctx.Err() != nil {
				return fmt.Errorf("removing a cgroup: %w: %w", context.Cause(ctx), err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// thawNodes has frozen nodes of a cluster go on: what is frozen in one hierarchy ends in none.
func thawNodes(all []hierarchy, name string) {
	for _, h := range all {
		for file, thaw := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
			nodes, _ := filepath.Glob(filepath.Join(h.path, name, "node-*", file)) // the pattern is right
			for _, node := range nodes {
				_ = os.WriteFile(node, []byte(thaw), 0) // what is then not removed is told
			}
		}
	}
}

// removeTree kills what is in a cgroup and those below it, and removes those
// that are empty by now. No error: all are gone.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs) // children first
	for _, dir := range dirs {
		pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, line := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
