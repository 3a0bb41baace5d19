package main

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
)

// TestLines: what can't be done says what can.
func TestLines(t *testing.T) {
	for line, want := range map[string]string{
		"halt vmlet-node-2": "not a command; these are:\n  cut NODE [api|nodes]",
		"kill":              "of which node? there are ",
		"kill vmlet-node-9": "there is no node vmlet-node-9: there are ",
	} {
		err := do(t.Context(), new(cluster.Cluster), strings.Fields(line))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}
