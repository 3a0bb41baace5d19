package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestSpareFromOOM(t *testing.T) {
	for before, want := range map[string]string{"0\n": "-900", "300\n": "-900", "-900\n": "-900\n", "-1000\n": "-1000\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "oom_score_adj")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := SpareFromOOM(dir); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", before, got, err, want)
		}
	}
	other := sleeper(t, uint32(os.Getuid()))
	err := SpareFromOOM(fmt.Sprintf("/proc/%d", other.Process.Pid))
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a process: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}
