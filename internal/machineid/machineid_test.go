package machineid

import (
	"strings"
	"testing"
)

// TestMachineIdentity: one machine has one identity, however its UUID is spelled, and another machine has another.
func TestMachineIdentity(t *testing.T) {
	const uuid = "4C4C4544-0042-3510-8052-B9C04F4E4D32"
	want := Of(uuid)
	if len(want) != 2*identityBytes || strings.Contains(strings.ToLower(uuid), want) {
		t.Fatalf("%q is no hash", want)
	}
	for spelling, same := range map[string]bool{
		strings.ToLower(uuid):                  true,
		strings.ReplaceAll(uuid, "-", ""):      true,
		uuid + "\n":                            true,
		"44454c4c-4200-1035-8052-b9c04f4e4d32": true, // the other byte order
		"4C4C4544-0042-3510-8052-B9C04F4E4D33": false,
		"4C4C4544-0042-3510-5280-B9C04F4E4D32": false, // the fourth field has one order
		"4C4C4544-0042":                        false,
	} {
		if got := Of(spelling); (got == want) != same || got == "" {
			t.Errorf("%q: %q, the same as %q: want %v", spelling, got, want, same)
		}
	}
	for _, none := range []string{"", " ", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"} {
		if got := Of(none); got != "" {
			t.Errorf("%q: %q, want none", none, got)
		}
	}
}
