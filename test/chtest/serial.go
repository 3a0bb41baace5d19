package chtest

import (
	"fmt"
	"io"
	"sync"
)

// console is the guest's serial console: where it writes to, and is typed to from.
type console struct {
	out  io.Writer
	keys chan byte // what was typed; closed by nobody
}

// keyBuffer is how many characters wait for the guest.
const keyBuffer = 256

// openConsole makes a console as its mode says. Those that vmlet asks for are all
// that there are.
func openConsole(mode string, own *terminal) (*console, error) {
	switch mode {
	case "Off", "Null":
		return &console{io.Discard, make(chan byte, keyBuffer)}, nil
	case "Tty":
		return &console{own.out, own.open()}, nil
	}
	return nil, fmt.Errorf("the stand-in has no console of mode %s", mode)
}

// terminal is the process's own: its standard input, if that is one, and output.
type terminal struct {
	in     io.Reader // nil: there is nothing to be read
	out    io.Writer
	keys   chan byte
	opened sync.Once
}

// open returns what is typed; it is read from now on, whatever becomes of the console.
func (t *terminal) open() chan byte {
	t.opened.Do(func() {
		t.keys = make(chan byte, keyBuffer)
		if t.in != nil {
			go t.read()
		}
	})
	return t.keys
}

func (t *terminal) read() {
	data := make([]byte, 64)
	for {
		n, err := t.in.Read(data)
		for _, key := range data[:n] {
			select {
			case t.keys <- key:
			default: // the guest doesn't read
			}
		}
		if err != nil {
			return
		}
	}
}
