package chtest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// typing talks to a guest over its console.
func typing(t *testing.T, console interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
}, want string) {
	t.Helper()
	if _, err := console.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(console)
	echo := false
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == guest.EchoPrefix+"x":
			echo = true
		case line == want:
			want = ""
		}
		if echo && want == "" {
			return
		}
	}
	t.Errorf("no echo or no %q: %v", want, lines.Err())
}

func TestSocketConsole(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	socket := b.path("serial")
	config := strings.Replace(b.config(""), `"mode":"File","file":"`+b.path("console")+`"`, `"mode":"Socket","socket":"`+socket+`"`, 1)
	b.booted(config)
	dial := func() net.Conn {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	first := dial()
	typing(t, first, guest.UpLine) // it was kept
	second := dial()
	typing(t, second, guest.CountPrefix+"20")
	for err := error(nil); err == nil; { // the first is hung up on
		_, err = first.Read(make([]byte, 1000))
	}
	b.must("vm.reboot", "")
	typing(t, dial(), guest.UpLine)
	b.must("vm.delete", "")
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}

	// One that no VM used stays, and is in the way.
	b.must("vm.create", config)
	b.must("vm.delete", "")
	b.try(call{"PUT", "vm.create", config, 500, "in use"})
}

func TestTerminalConsole(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	b.booted(strings.Replace(b.config(""), `"mode":"File","file":"`+b.path("console")+`"`, `"mode":"Pty"`, 1))
	config, _ := b.info()
	terminal, err := os.OpenFile(config.Serial.File, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	typing(t, terminal, guest.UpLine)
}

// TestFileConsole: every boot begins the file anew.
func TestFileConsole(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	b.booted(b.config(""))
	b.counted(5)
	b.must("vm.reboot", "")
	b.counted(1)
	if n := strings.Count(b.console(), guest.UpLine); n != 1 {
		t.Errorf("%d boots in the file", n)
	}
	for _, mode := range []string{"Off", "Null", "Tty"} {
		other := newBench(t, Knobs{Tick: 1})
		other.booted(fmt.Sprintf(`{"payload":{"kernel":%q},"memory":{"size":4194304},"serial":{"mode":%q}}`, other.path("kernel"), mode))
	}
}

// TestKeys: the guest ends and begins anew when it is told to.
func TestKeys(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	b.booted(b.config(""))
	press := func(key byte) {
		b.vmm.mu.Lock()
		defer b.vmm.mu.Unlock()
		b.vmm.serial.keys <- key
	}
	press(guest.KeyReset)
	await(t, "a reboot", func() bool { return strings.Contains(b.events.String(), "rebooted") })
	press(guest.KeyPowerOff)
	<-b.vmm.Exited()

	n := newBench(t, Knobs{Tick: 1}, func(o *Options) { o.NoShutdown = true })
	n.booted(n.config(""))
	n.must("vm.power-button", "")
	await(t, "a shutdown", func() bool { return strings.Contains(n.events.String(), `"shutdown"`) })
	if state := n.state(); state != "Created" {
		t.Errorf("after a shutdown: %s", state)
	}
}
