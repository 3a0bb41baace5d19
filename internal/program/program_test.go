package program

import "testing"

func TestVersion(t *testing.T) {
	if got := Version("v1.2.3"); got != "v1.2.3" {
		t.Errorf("the linker's version v1.2.3 is given as %q", got)
	}
	if Version("") == "" {
		t.Error("no version without the linker's")
	}
}
