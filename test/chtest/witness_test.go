package chtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// TestWitness: a guest that is told to counts on its disk, goes on there after a restore as the same boot, and
// as another one after a boot; it notes what somebody else has written.
func TestWitness(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	disk, err := os.OpenFile(b.path("disk"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if err := disk.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	writes := func(what string, so func(guest.Witness) bool) (w guest.Witness) {
		t.Helper()
		await(t, what, func() bool {
			w, err = guest.ReadWitness(disk)
			return err == nil && so(w)
		})
		return w
	}
	config := strings.Replace(b.config(fmt.Sprintf(`,"disks":[{"id":"a","path":%q,"image_type":"Raw"}]`, b.path("disk"))),
		`"kernel":`, `"cmdline":"quiet vmlet.witness=/dev/vda","kernel":`, 1)
	b.booted(config)
	first := writes("a record", func(w guest.Witness) bool { return w.Count > 1 && len(w.Boot) == 36 })
	b.must("vm.pause", "")
	first = writes("the last record", func(guest.Witness) bool { return true })
	folder := t.TempDir()
	b.must("vm.snapshot", `{"destination_url":"file://`+folder+`"}`)
	b.start()
	b.must("vm.restore", `{"source_url":"file://`+folder+`","resume":true}`)
	on := writes("a record after the restore", func(w guest.Witness) bool { return w.Count > first.Count+1 })
	if on.Boot != first.Boot || on.Intrusion != "" {
		t.Errorf("a restored guest writes %+v, want boot %s and no intrusion", on, first.Boot)
	}
	if _, err := disk.WriteAt([]byte("witness another 1000 end\n"), 0); err != nil {
		t.Fatal(err)
	}
	intruded := writes("an intrusion", func(w guest.Witness) bool { return w.Intrusion != "" })
	if !strings.Contains(intruded.Intrusion, "boot "+first.Boot) || !strings.Contains(intruded.Intrusion, "witness another 1000") {
		t.Errorf("of another writer the guest notes %q", intruded.Intrusion)
	}
	b.start()
	b.booted(config)
	if again := writes("another boot's record", func(w guest.Witness) bool { return w.Boot != first.Boot && w.Boot != "another" }); again.Count <= 1000 {
		t.Errorf("after record 1000 another boot counts on from %d", again.Count)
	}
}
