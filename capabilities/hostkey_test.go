package capabilities

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRecentHostKey: who asks again in the same moment is told the same, and who asks
// later what has become of the machine.
func TestRecentHostKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, root: t.TempDir()}
		m.write("proc/cmdline", "quiet")
		keys := NewHostKeys(m.roots(), "test", nil)
		before := keys.Recent()
		m.write("proc/cmdline", "quiet kvm.nested=0")
		after := HostKey(m.roots(), "test", nil)
		time.Sleep(moment - 1)
		if got := keys.Recent(); got != before {
			t.Errorf("in the same moment %s, before %s", got, before)
		}
		time.Sleep(time.Nanosecond)
		if got := keys.Recent(); got != after || after == before {
			t.Errorf("a moment later %s, the machine's is %s and was %s", got, after, before)
		}
	})
}
