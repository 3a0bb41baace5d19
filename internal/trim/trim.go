// Package trim gives back memory of this process that only its past has needed.
package trim

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process frees the heap's unused pages, and unmaps the program's own: half of them are code and
// tables that the start alone runs through, which otherwise stay mapped, and so resident. Those that are
// needed after all are mapped again from the page cache. It takes a millisecond or two, and longer where
// much else is mapped.
func Process() error {
	debug.FreeOSMemory()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := clean(f, program)
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, _, no := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); no != 0 {
			return os.NewSyscallError("madvise", no)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// clean returns the mappings of a file in which no page differs from it, of a text as /proc/PID/smaps:
// private pages, as of relocations or of a debugger's breakpoints, would be lost.
func clean(smaps io.Reader, file string) (all []mapping, err error) {
	var last *mapping // of the file, if what comes is about it
	in := bufio.NewScanner(smaps)
	for in.Scan() {
		fields := strings.Fields(in.Text())
		if len(fields) == 0 {
			continue
		}
		switch key, is := strings.CutSuffix(fields[0], ":"); {
		case !is: // ADDRESS-ADDRESS PERMISSIONS OFFSET DEVICE INODE PATH
			m, err := addresses(fields[0])
			if err != nil {
				return nil, err
			}
			last = nil
			if len(fields) == 6 && fields[5] == file && !strings.Contains(fields[1], "w") {
				last = &m
			}
		case key == "Anonymous" && last != nil && len(fields) > 1 && fields[1] == "0":
			all = append(all, *last)
		}
	}
	return all, in.Err()
}

func addresses(text string) (mapping, error) {
	from, to, _ := strings.Cut(text, "-")
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("/proc/self/smaps: %w", err)
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("/proc/self/smaps: %w", err)
	}
	return mapping{uintptr(start), uintptr(end)}, nil
}
