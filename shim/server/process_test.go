package server

import (
	"fmt"
	"os"
	"testing"
)

// TestWorkingDirectory: a VMM is not left in the shim's directory, which in a pod is
// whatever the image says.
func TestWorkingDirectory(t *testing.T) {
	s := newScene(t, nil)
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", s.launch()))
	if err != nil || cwd != "/" {
		t.Errorf("the VMM's working directory is %q, %v", cwd, err)
	}
}
