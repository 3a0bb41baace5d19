package chtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// witnessInterval is how often the guest writes to its disk.
const witnessInterval = 200 * time.Millisecond

// The disk's first two blocks, as guest.ReadWitness reads them.
const (
	witnessBlock     = 4096
	witnessRecord    = "witness %s %d end\n"
	witnessIntrusion = "boot %s wrote record %d and found in its place: %s"
)

// witnessAt is where in page 0 the guest remembers what it wrote, as JSON after its length.
const witnessAt = 2048

// testimony is what the guest remembers: a restore without its memory does not have it.
type testimony struct {
	Boot   string
	Number int
	Last   string
	Noted  bool
}

// witnessDisk is the disk on which the guest counts, as that of test/guest/init does when its kernel is told
// vmlet.witness=DEVICE: the first that it may write to. nil: it is not told, or there is none.
func (v *vm) witnessDisk() *os.File {
	c := v.vmm.config
	if !strings.Contains(c.Payload.Cmdline, "vmlet.witness=") {
		return nil
	}
	for _, one := range c.Disks {
		if d := v.bus.devices[one.ID]; d != nil && d.disk != nil && !d.disk.readonly {
			return d.disk.file
		}
	}
	return nil
}

// bear has the guest count once on its disk, past all caches, and note what it has not written. An error ends that.
func (m *machine) bear() error {
	w := m.testimony()
	found, err := m.record()
	if err != nil {
		return err
	}
	if w.Last != "" && found != w.Last && !w.Noted {
		if err := m.put(fmt.Sprintf(witnessIntrusion, w.Boot, w.Number, found), witnessBlock); err != nil {
			return err
		}
		w.Noted = true
	}
	var other string
	var n int
	_, _ = fmt.Sscanf(found, witnessRecord, &other, &n) // none is there at first
	w.Number = max(w.Number, n) + 1
	w.Last = fmt.Sprintf(witnessRecord, w.Boot, w.Number)
	m.remember(w)
	return m.put(w.Last, 0)
}

// record is what the disk has now.
func (m *machine) record() (string, error) {
	if err := unix.Fadvise(int(m.disk.Fd()), 0, 2*witnessBlock, unix.FADV_DONTNEED); err != nil {
		return "", err
	}
	block := make([]byte, witnessBlock)
	_, err := m.disk.ReadAt(block, 0)
	return string(bytes.TrimRight(block, "\x00")), err
}

func (m *machine) put(text string, at int64) error {
	block := make([]byte, witnessBlock)
	copy(block, text)
	if _, err := m.disk.WriteAt(block, at); err != nil {
		return err
	}
	return m.disk.Sync()
}

func (m *machine) testimony() (w testimony) {
	page := m.ram.at(0)[witnessAt:4096]
	size := min(binary.LittleEndian.Uint64(page), uint64(len(page)-8))
	_ = json.Unmarshal(page[8:8+size], &w) // it is another guest's memory
	return w
}

func (m *machine) remember(w testimony) {
	page := m.ram.at(0)[witnessAt:4096]
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // it has but words and numbers
	}
	binary.LittleEndian.PutUint64(page, uint64(len(text)))
	copy(page[8:], text)
}

// bootsToWitness gives a guest that is booted a boot ID.
func (m *machine) bootsToWitness() { m.remember(testimony{Boot: uuid.NewString()}) }
