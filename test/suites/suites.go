// Package suites lets suites of tests share one machine. [StartsVMs] runs a few of the suites that
// start VMs or clusters at a time, also those of several checkouts. [Patience] waits longer
// while the machine is busy.
package suites

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/flock"
)

// started is set for the programs that tests start: a test binary among them has its place with
// the one that started it.
const started = "VMLET_TESTS_STARTED"

// waited names a file for the seconds that a suite waited for others: test/timed reads it.
const waited = "VMLET_WAITED"

const (
	// fewestPlaces and mostPlaces bound how many suites with VMs run at a time: one for each processor,
	// as far as the memory goes. Each waits most of its time, for pods and guests that start.
	fewestPlaces, mostPlaces = 2, 4
	// perSuite is the memory in bytes that a suite may need, with a cluster and its guests.
	perSuite = 4 << 30
	// pause is between two looks for a place.
	pause = 100 * time.Millisecond
)

// StartsVMs runs the tests of a package that starts VMs or clusters while only a few others do, and
// returns the code to exit with.
func StartsVMs(m *testing.M) int {
	if os.Getenv(started) != "" {
		return m.Run()
	}
	flag.Parse()
	began, timeout := time.Now(), flag.Lookup("test.timeout")
	most := timeout.Value.(flag.Getter).Get().(time.Duration) // 0: no limit
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if most > 0 {
		ctx, cancel = context.WithTimeout(ctx, most)
	}
	defer cancel()
	paths, err := locks()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	free, err := lock(ctx, paths)
	if err != nil {
		fmt.Fprintf(os.Stderr, "waiting for other suites that start VMs, within -timeout=%v: %v: raise -timeout\n", most, err)
		return 1
	}
	defer free()
	if file := os.Getenv(waited); file != "" {
		if err := os.WriteFile(file, fmt.Append(nil, time.Since(began).Seconds()), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := os.Setenv(started, "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// `go test` kills what lasts longer than -timeout, and counts the wait.
	if most > 0 {
		_ = timeout.Value.Set(max(most-time.Since(began), 1).String()) // a duration
	}
	return m.Run()
}

// locks are the files to lock, one for each suite that may run, as far as the memory goes.
func locks() ([]string, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("asking how much memory there is: %w", err)
	}
	n := min(max(uint64(info.Totalram)*uint64(info.Unit)/perSuite, 1), uint64(min(max(runtime.NumCPU(), fewestPlaces), mostPlaces)))
	var paths []string
	for i := range n {
		paths = append(paths, filepath.Join(os.TempDir(), fmt.Sprintf("vmlet-tests-%d-%d.lock", os.Getuid(), i)))
	}
	return paths, nil
}

// lock locks the first of the files that nobody else has locked, and makes those that are not
// there. While all are locked it waits.
func lock(ctx context.Context, paths []string) (unlock func(), err error) {
	for {
		for _, path := range paths {
			file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
			if err != nil {
				return nil, err
			}
			err = flock.Try(file, unix.LOCK_EX)
			if err == nil {
				return func() { file.Close() }, nil
			}
			file.Close()
			if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil {
				return nil, fmt.Errorf("locking %s: %w", path, err)
			}
		}
		time.Sleep(pause)
	}
}
