package probe

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what a program may be made of: QEMU 10.0 has some 150 libraries, and
// a list of 100 KiB.
const (
	maxMaps      = 4 << 20 // bytes of the list
	maxLoaded    = 2000    // files
	maxProcesses = 8       // a wrapper and its children
)

// loaded are the files that a process and its children run: where a script starts
// the program, that program is among them, and so are its libraries and modules.
// Sorted; those that the kernel doesn't tell are missing. One that is not there
// any more has goneSuffix.
func loaded(pid int) []string {
	processes := []int{pid}
	var files []string
	for i := 0; i < len(processes) && i < maxProcesses; i++ {
		files = append(files, mapped(processes[i])...)
		processes = append(processes, children(processes[i])...)
	}
	slices.Sort(files)
	files = slices.Compact(files)
	return files[:min(len(files), maxLoaded)]
}

// goneSuffix is what the kernel adds to a file's name that has been removed, or
// replaced, since it was mapped (proc(5)).
const goneSuffix = " (deleted)"

// mapped are the files whose code a process has in its memory
// (/proc/PID/maps, proc(5)).
func mapped(pid int) []string {
	var files []string
	for line := range strings.Lines(procText(pid, "maps")) {
		fields := strings.Fields(line) // address, rights, offset, device, inode, path
		at := strings.IndexByte(line, '/')
		if len(fields) < 6 || at < 0 || !strings.Contains(fields[1], "x") {
			continue
		}
		// Memory that has a name is no file (memfd_create(2), shmget(2)).
		file := strings.TrimSuffix(line[at:], "\n")
		if !strings.HasPrefix(file, "/memfd:") && !strings.HasPrefix(file, "/SYSV") && !strings.HasPrefix(file, "/dev/") {
			files = append(files, file)
		}
	}
	return files
}

func children(pid int) []int {
	var found []int
	for _, word := range strings.Fields(procText(pid, fmt.Sprintf("task/%d/children", pid))) {
		if child, err := strconv.Atoi(word); err == nil {
			found = append(found, child)
		}
	}
	return found
}

func procText(pid int, name string) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMaps))
	if err != nil {
		return ""
	}
	return string(text)
}
