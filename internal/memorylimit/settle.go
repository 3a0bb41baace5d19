package memorylimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settled is when a program has long come up: its caches are filled and its certificate is there.
const settled = time.Minute

// gcPercent keeps a heap close to what is in use: garbage of a program that waits for something to do is little.
const gcPercent = 50

// Settle waits until the program has come up, and then gives back what only that has needed. From then on
// garbage is collected at half a heap's growth, unless GOGC says at which. It returns early when ctx ends.
func Settle(ctx context.Context, log *slog.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(settled):
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := giveBack(); err != nil {
		log.Warn("failed to give back the memory that the start has needed", "error", err)
	}
}

// giveBack frees the heap's unused pages, and unmaps the program's own: half of them are code and
// tables that the start alone runs through, which otherwise stay mapped, and so resident. Those that are
// needed after all are mapped again from the page cache.
func giveBack() error {
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
