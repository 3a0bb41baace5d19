package guest_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// TestWitness: a guest counts on its disk, where this machine reads it, and notices another writer.
func TestWitness(t *testing.T) {
	for name, qemu := range newest(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			disk, err := os.OpenFile(file(t, make([]byte, 1<<20)), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			m := bootLinux(t, qemu, quiet+" vmlet.interval=50ms vmlet.witness=/dev/vda",
				"-drive", "file="+disk.Name()+",format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk")
			m.expect("count 0 [0-9]+")
			counted := until(t, disk, func(w guest.Witness) bool { return w.Count > 2 })
			if len(counted.Boot) != 36 || counted.Intrusion != "" {
				t.Fatalf("the guest writes %+v, want a boot ID and no intrusion", counted)
			}
			after := until(t, disk, func(w guest.Witness) bool {
				if w.Intrusion == "" { // also if the guest has read its own record, and writes the next one over this
					if _, err := disk.WriteAt([]byte("witness another 1000 end\n"), 0); err != nil {
						t.Fatal(err)
					}
				}
				return w.Intrusion != "" && w.Boot != "another"
			})
			if after.Count <= 1000 {
				t.Errorf("after a record 1000 the guest counts on from %d", after.Count)
			}
			if !strings.Contains(after.Intrusion, "boot "+counted.Boot) || !strings.Contains(after.Intrusion, "witness another 1000") {
				t.Errorf("of another writer the guest notes %q", after.Intrusion)
			}
		})
	}
}

// until waits until a guest's record is as it should be.
func until(t *testing.T, disk io.ReaderAt, so func(guest.Witness) bool) guest.Witness {
	t.Helper()
	ctx, cancel := suites.Wait(t.Context(), t, time.Minute)
	defer cancel()
	for {
		w, err := guest.ReadWitness(disk)
		if err == nil && so(w) {
			return w
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the guest's record stays %+v: %v", w, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
