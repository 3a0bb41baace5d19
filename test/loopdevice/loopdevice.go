// Package loopdevice makes block devices for tests. Start reading at New.
package loopdevice

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// New returns the path of a loop device of some bytes, full of zeros, which is there until the test's end.
// It skips the test where none can be made.
func New(t testing.TB, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		}
	})
	return device
}
