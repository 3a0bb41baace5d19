package chtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vmlet/vmlet/test/guest"
)

// machine is the made-up guest. All that it remembers is in guest RAM: so it goes
// on counting after a restore only if memory was restored.
//
// Page 0 begins with guestMagic, the number that comes next, and what the guest is
// (guest.PVHOptions, as JSON after its length).
type machine struct {
	ram     *ram
	console *console
	knobs   func() Knobs
	leave   func(reset bool)
	disk    *os.File // on which it counts, too; nil: on none

	button chan struct{} // holds one press
	stop   chan struct{} // nil while it doesn't run
	done   chan struct{}
}

const guestMagic = 0x74736575672d6863 // "ch-guest"

// optionsAt is where they are in page 0.
const optionsAt = 16

// boot is what the guest does first.
func (m *machine) boot(o guest.PVHOptions) {
	page := m.ram.at(0)
	binary.LittleEndian.PutUint64(page, guestMagic)
	binary.LittleEndian.PutUint64(page[8:], 0)
	options, err := json.Marshal(o)
	if err != nil {
		panic(err) // it has but numbers and truths
	}
	binary.LittleEndian.PutUint64(page[optionsAt:], uint64(len(options)))
	copy(page[optionsAt+8:], options)
	m.bootsToWitness()
	m.print("%s", guest.UpLine)
	if p := o.Memory; p.MiB > 0 {
		m.eachPage(p, func(_ uint64, have []byte, want []uint32) bool {
			for i, word := range want {
				binary.LittleEndian.PutUint32(have[4*i:], word)
			}
			return true
		})
		m.print("%s%d", guest.FilledPrefix, p.MiB)
	}
}

// options are what boot has put into memory. In other memory there are none.
func (m *machine) options() (o guest.PVHOptions) {
	page := m.ram.at(0)[optionsAt:witnessAt]
	size := min(binary.LittleEndian.Uint64(page), uint64(len(page)-8))
	_ = json.Unmarshal(page[8:8+size], &o)
	return o
}

// run lets the guest go on.
func (m *machine) run() {
	m.stop, m.done = make(chan struct{}), make(chan struct{})
	go m.loop(m.stop, m.done)
}

// halt returns when the guest stands still.
func (m *machine) halt() {
	if m.stop != nil {
		close(m.stop)
		<-m.done
		m.stop = nil
	}
}

// press presses the power button, which a guest that stands still sees later.
func (m *machine) press() {
	select {
	case m.button <- struct{}{}:
	default:
	}
}

// flooding is the time between counts of a guest that counts as fast as it can.
const flooding = 20 * time.Microsecond

func (m *machine) loop(stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	tick := 20 * time.Millisecond
	if ms := m.knobs().Tick; ms > 0 {
		tick = time.Duration(ms) * time.Millisecond
	}
	options := m.options()
	if options.Flood {
		tick = flooding
	}
	timer := time.NewTicker(tick)
	defer timer.Stop()
	witness, bears := time.NewTicker(witnessInterval), m.disk != nil
	defer witness.Stop()
	for alive := m.count(); alive; {
		select {
		case <-stop:
			return
		case <-timer.C:
			alive = m.count()
		case <-witness.C:
			bears = bears && m.bear() == nil
		case key := <-m.console.keys:
			alive = m.key(key)
		case <-m.button:
			m.print("%s", guest.PowerLine)
			if !options.IgnorePowerButton {
				alive = false
				go m.leave(false)
			}
		}
	}
}

// count writes the next number. A guest that doesn't find itself in memory says
// so, and is dead.
func (m *machine) count() bool {
	page := m.ram.at(0)
	if binary.LittleEndian.Uint64(page) != guestMagic {
		m.print("%s%08x", guest.CorruptLine, 0)
		return false
	}
	n := binary.LittleEndian.Uint64(page[8:])
	m.print("%s%d", guest.CountPrefix, n)
	binary.LittleEndian.PutUint64(page[8:], n+1)
	return true
}

// key acts on a character that was typed, as the guest of test/guest does.
func (m *machine) key(key byte) (alive bool) {
	pattern := m.options().Memory
	switch {
	case key == '\n' || key == '\r':
	case key == guest.KeyPowerOff:
		go m.leave(false)
		return false
	case key == guest.KeyReset:
		go m.leave(true)
		return false
	case key == guest.KeyVerify && pattern.MiB > 0:
		m.verify(pattern)
	default:
		m.print("%s%c", guest.EchoPrefix, key)
	}
	return true
}

func (m *machine) verify(p guest.Pattern) {
	right := m.eachPage(p, func(address uint64, have []byte, want []uint32) bool {
		for i, word := range want {
			if binary.LittleEndian.Uint32(have[4*i:]) != word {
				m.print("%s%08x", guest.CorruptLine, address+uint64(4*i))
				return false
			}
		}
		return true
	})
	if right {
		m.print("%s%08x", guest.VerifyPrefix, p.Sum())
	}
}

// eachPage goes through the pattern's pages, as far as there is memory.
func (m *machine) eachPage(p guest.Pattern, visit func(address uint64, have []byte, want []uint32) bool) bool {
	for n := range p.MiB << 20 / 4096 {
		address := uint64(p.Address) + uint64(n)*4096
		have := m.ram.at(address)
		if len(have) < 4096 || !visit(address, have[:4096], p.Page(n)) {
			return false
		}
	}
	return true
}

func (m *machine) print(format string, args ...any) {
	io.WriteString(m.console.out, fmt.Sprintf(format, args...)+"\n")
}
