package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/vmm/standard"
)

// TestEveryVMMHasADriver: a plan of each VMM that is registered can be carried out.
func TestEveryVMMHasADriver(t *testing.T) {
	got, want := slices.Sorted(maps.Keys(drivers())), slices.Sorted(slices.Values(standard.Registry().Names()))
	if !slices.Equal(got, want) {
		t.Errorf("drivers of %q, want them of %q", got, want)
	}
}
