package usage

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxFile bounds what is read of one file, in bytes: all of them are one line, or
// some dozens.
const maxFile = 16 << 10

// read returns the beginning of a file. O_NONBLOCK: a pipe in a tree that was
// made up must not hold us up.
func read(path string) (string, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	var buffer [maxFile]byte
	n := 0
	for n < len(buffer) {
		got, err := syscall.Read(fd, buffer[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		}
		if got <= 0 {
			break
		}
		n += got
	}
	return string(buffer[:n]), nil
}

func trim(text string) string { return strings.TrimSpace(text) }

// field returns one of the numbers in a line, the first being 0.
func field(text string, index int) (uint64, bool) {
	for f := range strings.FieldsSeq(text) {
		if index == 0 {
			n, err := strconv.ParseUint(f, 10, 63)
			return n, err == nil
		}
		index--
	}
	return 0, false
}

func nanoseconds(text string, index int) (time.Duration, bool) {
	n, ok := field(text, index)
	return time.Duration(n), ok
}

// tick is the unit of times in stat files: USER_HZ is 100 on every architecture
// that vmlet is for (include/asm-generic/param.h).
const tick = time.Second / 100

// maxTicks is the most that fits a time.Duration.
const maxTicks = uint64(1<<63-1) / uint64(tick)

// stat is what is read of a stat file.
type stat struct {
	parent       int
	threads      uint64
	user, system time.Duration
}

// parseStat reads fields 4, 14, 15 and 20 of proc_pid_stat(5). The name, in
// brackets, may have any character.
func parseStat(text string) (stat, bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, false
	}
	rest := text[end+1:] // field 3 is its first
	parent, ok := field(rest, 1)
	user, ok2 := field(rest, 11)
	system, ok3 := field(rest, 12)
	threads, ok4 := field(rest, 17)
	if !ok || !ok2 || !ok3 || !ok4 || parent > 1<<31 || user > maxTicks/2 || system > maxTicks/2 {
		return stat{}, false
	}
	return stat{
		parent: int(parent), threads: threads,
		user: time.Duration(user) * tick, system: time.Duration(system) * tick,
	}, true
}

// waitSum reads the line of that name in a thread's sched file, in milliseconds
// (proc_sched_show_task in kernel/sched/debug.c); nil: it isn't there.
func waitSum(text string) *time.Duration {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		name = trim(name)
		if !ok || (name != "wait_sum" && name != "se.statistics.wait_sum" && name != "stats->wait_sum") {
			continue
		}
		ms, err := strconv.ParseFloat(trim(value), 64)
		if err != nil || !(ms >= 0 && ms < 1e12) {
			return nil
		}
		d := time.Duration(ms * float64(time.Millisecond))
		return &d
	}
	return nil
}

// keyed reads the number after a word at a line's beginning, as in cpu.stat.
func keyed(text, key string) (uint64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key+" "); ok {
			return field(rest, 0)
		}
	}
	return 0, false
}
