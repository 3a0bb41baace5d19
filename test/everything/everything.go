// Package everything says in which form tests run. In the short one, which `make test`
// has, each VMM goes through all that there is once; its other versions, under the other
// hypervisors, go through what may differ there.
package everything

import (
	"os"
	"testing"
)

// Variable of the environment that has everything run everywhere.
const Variable = "VMLET_EVERYTHING"

// Wanted says whether it is set.
func Wanted() bool { return os.Getenv(Variable) != "" }

// OrSkip skips what the short form leaves out.
func OrSkip(t testing.TB, why string) {
	t.Helper()
	if !Wanted() {
		t.Skipf("%s: %s=1 runs it all the same", why, Variable)
	}
}
