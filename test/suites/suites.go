// Package suites lets suites of tests share one machine. [Alone] runs the suites that start VMs
// or clusters one after the other, also those of several checkouts. [Patience] waits longer
// while the machine is busy.
package suites

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/flock"
)

// alone is set for the programs that tests start: a test binary among them runs under the
// lock of the one that started it.
const alone = "VMLET_TESTS_ALONE"

// waited names a file for the seconds that a suite waited for others: test/timed reads it.
const waited = "VMLET_WAITED"

// Alone runs a package's tests while no other package that calls it runs any, and returns
// the code to exit with.
func Alone(m *testing.M) int {
	if os.Getenv(alone) != "" {
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
	unlock, err := lock(ctx, filepath.Join(os.TempDir(), fmt.Sprintf("vmlet-tests-%d.lock", os.Getuid())))
	if err != nil {
		fmt.Fprintf(os.Stderr, "waiting for other suites that start VMs, within -timeout=%v: %v: raise -timeout\n", most, err)
		return 1
	}
	defer unlock()
	if file := os.Getenv(waited); file != "" {
		if err := os.WriteFile(file, fmt.Append(nil, time.Since(began).Seconds()), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := os.Setenv(alone, "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// `go test` kills what lasts longer than -timeout, and counts the wait.
	if most > 0 {
		_ = timeout.Value.Set(max(most-time.Since(began), 1).String()) // a duration
	}
	return m.Run()
}

// lock locks a file, which it makes if there is none, and waits for others who have.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.Wait(file, unix.LOCK_EX, func() bool { return ctx.Err() == nil }); err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
