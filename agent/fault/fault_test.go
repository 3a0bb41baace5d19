package fault

import "testing"

// TestClip cuts between characters.
func TestClip(t *testing.T) {
	for _, test := range []struct {
		text string
		max  int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aüb", 2, "a"}, {"aüb", 3, "aü"}, {"", 0, ""}} {
		if got := Clip(test.text, test.max); got != test.want {
			t.Errorf("%q to %d: %q", test.text, test.max, got)
		}
	}
}
