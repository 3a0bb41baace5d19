package virtualmachines_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

const (
	// writesOfAVM is how often vmlet may write to the API from a VM's creation until it runs.
	writesOfAVM = 8
	// idleWhile is how long vmlet then has to write nothing, once what goes with Running is written.
	idleWhile = time.Minute
)

// testWrites counts vmlet's writes to the API in the audit log.
func (v *installed) testWrites(t *testing.T) {
	before := len(v.writes(t))
	v.create(t, machine(t, "counted", kubevirtv1.RunStrategyAlways, idle))
	v.printed(t, "counted", kubevirtv1.StatusRunning)
	running := v.writes(t)[before:]
	if len(running) > writesOfAVM {
		t.Errorf("a VM took %d writes until it ran, want at most %d:\n%s", len(running), writesOfAVM, lines(running))
	}
	t.Logf("a VM took %d writes until it ran:\n%s", len(running), lines(running))
	more := v.idle(t)
	if len(more) > 0 {
		t.Logf("written behind Running:\n%s", lines(more))
		more = v.idle(t) // a slow machine may still have had something to tell
	}
	if len(more) > 0 {
		t.Errorf("in an idle while there were %d writes:\n%s", len(more), lines(more))
	}
	v.remove(t, machine(t, "counted", "", idle))
	v.noMachine(t, "counted")
}

// idle waits for idleWhile and returns what was written meanwhile.
func (v *installed) idle(t *testing.T) []cluster.Write {
	t.Helper()
	before := len(v.writes(t))
	select {
	case <-time.After(idleWhile):
	case <-v.Broken().Done():
		t.Fatal("the cluster has broken")
	}
	return v.writes(t)[before:]
}

// writes are those of vmlet's accounts, without events and leases. A conflict wrote nothing: on a busy
// machine a cache is behind.
func (v *installed) writes(t *testing.T) []cluster.Write {
	t.Helper()
	all, err := v.Writes(func(w cluster.Write) bool {
		return strings.HasPrefix(w.User, "system:serviceaccount:vmlet:") && w.Resource != "events" && w.Resource != "leases" &&
			w.Resource != "tokenreviews" && w.Resource != "subjectaccessreviews" && w.Code != http.StatusConflict
	})
	must(t, err)
	return all
}

func lines(all []cluster.Write) string {
	var out strings.Builder
	for _, w := range all {
		fmt.Fprintln(&out, w)
	}
	return out.String()
}
