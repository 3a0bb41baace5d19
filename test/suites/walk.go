package suites

import "testing"

// Walk skips the rest of a test that walks combinations of states without any concurrency, if the race detector
// is on: it has nothing to find there, and makes the walk eight times as long. `make test` runs the packages
// that call it without the race detector, too.
func Walk(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("make test walks this without -race")
	}
}
