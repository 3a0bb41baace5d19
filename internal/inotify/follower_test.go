package inotify

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFollower: a folder that wasn't there is watched once it is followed again,
// and one that isn't followed any more is not.
func TestFollower(t *testing.T) {
	dir := t.TempDir()
	late := filepath.Join(dir, "late")
	var f Follower
	defer f.Close()
	if f.Changes() != nil {
		t.Error("the zero Follower watches something")
	}
	follow := func(i Interest) {
		t.Helper()
		if err := f.Follow([]Interest{i}); err != nil {
			t.Fatal(err)
		}
	}
	told := func(what string) {
		t.Helper()
		select {
		case <-f.Changes():
		case <-time.After(30 * time.Second):
			t.Fatal(what + " was not told")
		}
	}
	follow(Interest{Path: late, Inside: "*"})
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	told("that the folder came")
	follow(Interest{Path: late, Inside: "*"})
	if err := os.WriteFile(filepath.Join(late, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told("what is in the new folder")

	follow(Interest{Path: filepath.Join(dir, "other")})
	if err := os.WriteFile(filepath.Join(late, "b"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told("the other")
	select {
	case <-f.Changes():
		t.Error("what isn't followed any more was told, too")
	default:
	}
}
