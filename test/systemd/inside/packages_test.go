package inside

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestPackages runs the tests of packages that meet cgroup v2 nowhere else, so that one
// that skips itself proves nothing.
func TestPackages(t *testing.T) {
	insideOrSkip(t)
	runs, err := filepath.Glob(packages + "/*/run")
	if err != nil || len(runs) == 0 {
		t.Fatalf("no tests were handed in: %v", err)
	}
	skipped := regexp.MustCompile(`(?m)^\s*--- SKIP: `)
	for _, run := range runs {
		t.Run(filepath.Base(filepath.Dir(run)), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), run)
			cmd.Dir = filepath.Dir(run)
			out, err := cmd.CombinedOutput()
			// Marked, so that their verdicts are not taken for one on this test.
			marked := regexp.MustCompile(`(?m)^`).ReplaceAllString(string(out), "| ")
			if err != nil || skipped.Match(out) {
				t.Errorf("want no failure and nothing skipped: %v\n%s", err, marked)
			}
		})
	}
}
