package capabilitiesv1

import (
	"maps"
	"slices"
	"testing"
)

// TestWord: people and selectors know the states by these words.
func TestWord(t *testing.T) {
	want := map[State]string{
		State_STATE_UNSPECIFIED: "",
		State_STATE_WORKS:       "works",
		State_STATE_DEGRADED:    "degraded",
		State_STATE_UNUSABLE:    "unusable",
		State_STATE_ABSENT:      "absent",
	}
	for _, number := range slices.Sorted(maps.Keys(State_name)) {
		s := State(number)
		if word, known := want[s]; !known || s.Word() != word {
			t.Errorf("%v is %q, want %q", s, s.Word(), word)
		}
	}
}
