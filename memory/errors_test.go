package memory

import "testing"

// TestSpaceError says how much there is of what is less than a MiB, too.
func TestSpaceError(t *testing.T) {
	err := &SpaceError{Dir: "/images", Need: 3 << 20, Available: 12 << 10}
	if want := "/images: not enough space: 3145728 bytes (3 MiB) needed, 12288 bytes (12 KiB) available: free some, or name another folder"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
