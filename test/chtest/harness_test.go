package chtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/printed"
)

// bench is a VMM in this process, and all that a VM needs.
type bench struct {
	t      *testing.T
	vmm    *VMM
	dir    string
	socket string
	events *printed.Text
	serial *printed.Text // what the guest wrote since the VMM's start
	mu     sync.Mutex
	knobs  Knobs
	more   []func(*Options)
}

// names are the events' so far.
func (b *bench) names() []string {
	b.t.Helper()
	var out []string
	d := json.NewDecoder(strings.NewReader(b.events.String()))
	for {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			return out
		} else if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, e.Source+" "+e.Event)
	}
}

func newBench(t *testing.T, k Knobs, more ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), knobs: k, more: more}
	if err := os.WriteFile(b.path("disk"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b.kernel(guest.PVHOptions{})
	b.start()
	t.Cleanup(func() { b.vmm.Close() })
	return b
}

// start starts a VMM, in the place of the one before.
func (b *bench) start() {
	b.t.Helper()
	if b.vmm != nil {
		b.vmm.Close()
	}
	b.socket = filepath.Join(b.t.TempDir(), "api")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.events, b.serial = &printed.Text{}, &printed.Text{}
	o := Options{Knobs: b.turned, Events: b.events, Stdout: b.serial}
	for _, change := range b.more {
		change(&o)
	}
	b.vmm = New(listener, o)
}

func (b *bench) turned() Knobs {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.knobs
}

func (b *bench) turn(k Knobs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.knobs = k
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// kernel makes the kernel of the VMs to come.
func (b *bench) kernel(o guest.PVHOptions) {
	b.t.Helper()
	elf, err := guest.PVH(o)
	if err == nil {
		err = os.WriteFile(b.path("kernel"), elf, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// config is a VM's that boots, with more fields.
func (b *bench) config(more string) string {
	return fmt.Sprintf(`{"payload":{"kernel":%q},"memory":{"size":8388608},"console":{"mode":"Off"},"serial":{"mode":"Tty"}%s}`,
		b.path("kernel"), more)
}

// zoned is the same with its RAM in a file.
func (b *bench) zoned(file string) string {
	if err := os.WriteFile(file, make([]byte, 8<<20), 0o600); err != nil {
		b.t.Fatal(err)
	}
	zone := fmt.Sprintf(`"memory":{"size":0,"zones":[{"id":"ram","size":8388608,"shared":true,"file":%q}]}`, file)
	return strings.Replace(b.config(""), `"memory":{"size":8388608}`, zone, 1)
}

func (b *bench) dial() *net.UnixConn {
	b.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute)) // only so that a test that fails ends
	return conn
}

// raw sends bytes and files, and reads one answer.
func (b *bench) raw(text string, files ...*os.File) (int, string) {
	b.t.Helper()
	conn := b.dial()
	defer conn.Close()
	var fds []int
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(text), rights, nil); err != nil {
		b.t.Fatal(err)
	}
	return b.answer(bufio.NewReader(conn))
}

func (b *bench) answer(r *bufio.Reader) (int, string) {
	b.t.Helper()
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// message is a request as it goes over the wire.
func message(method, call, body string) string {
	head := method + " /api/v1/" + call + " HTTP/1.1\r\nHost: localhost\r\n"
	if body != "" {
		head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return head + "\r\n" + body
}

func (b *bench) put(call, body string, files ...*os.File) (int, string) {
	b.t.Helper()
	return b.raw(message("PUT", call, body), files...)
}

func (b *bench) get(call string) (int, string) {
	b.t.Helper()
	return b.raw(message("GET", call, ""))
}

// must is a call that succeeds.
func (b *bench) must(call, body string, files ...*os.File) string {
	b.t.Helper()
	status, answer := b.put(call, body, files...)
	if status != http.StatusNoContent && status != http.StatusOK {
		b.t.Fatalf("%s: %d %s", call, status, answer)
	}
	return answer
}

func (b *bench) booted(config string) {
	b.t.Helper()
	b.must("vm.create", config)
	b.must("vm.boot", "")
}

func (b *bench) state() string {
	b.t.Helper()
	_, body := b.get("vm.info")
	var info struct{ State string }
	if err := json.Unmarshal([]byte(body), &info); err != nil {
		b.t.Fatalf("%v: %s", err, body)
	}
	return info.State
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 6000 {
		if so() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func (b *bench) console() string { return b.serial.String() }

// counted waits for a number of the guest's.
func (b *bench) counted(n int) {
	b.t.Helper()
	await(b.t, fmt.Sprintf("count %d", n), func() bool { return strings.Contains(b.console(), fmt.Sprintf("count %d\n", n)) })
}
