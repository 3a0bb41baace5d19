package chtest

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vmlet/vmlet/test/printed"
)

func TestRequests(t *testing.T) {
	b := newBench(t, Knobs{})
	for text, want := range map[string]int{
		message("PUT", "vm.create", `{"x":"`+strings.Repeat("y", maxBody-8)+`"}`): 204,
		message("PUT", "vm.create", `{"x":"`+strings.Repeat("y", maxBody-7)+`"}`): 400,
		"POST /api/v1/vmm.ping HTTP/1.1\r\n\r\n":                                  400,
		"GET /api/v1/vmm.ping HTTP/2.0\r\n\r\n":                                   400,
		"GET /api/v1/vmm.ping\r\n\r\n":                                            400,
		"GET  HTTP/1.1\r\n\r\n":                                                   400,
		"GET api/v1/vmm.ping HTTP/1.1\r\n\r\n":                                    404,
		"GET /" + strings.Repeat("a", 1024) + " HTTP/1.1\r\n\r\n":                 400,
		"GET /api/v1/vmm.ping HTTP/1.1\r\nX: " + strings.Repeat("a", 1024):        400,
		"GET /api/v1/vmm.ping HTTP/1.1\r\nNo colon\r\n\r\n":                       400,
		"GET /api/v1/vmm.ping HTTP/1.1\r\nContent-Length: x\r\n\r\n":              400,
		"GET /api/v1/vmm.ping HTTP/1.1\r\nAccept-Encoding: gzip\r\nX-Y:\r\n\r\n":  200,
		"PUT /api/v1/vm.delete HTTP/1.1\r\nContent-Length: 0\r\n\r\n":             204,
		// Chunks are no body, and no request either.
		"PUT /api/v1/vm.resize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n": 400,
	} {
		if status, body := b.raw(text); status != want {
			t.Errorf("%.80q: %d %s, want %d", text, status, body, want)
		}
	}
}

// TestOneConnection: requests on one connection, one in pieces, several at once, and
// what is none.
func TestOneConnection(t *testing.T) {
	b := newBench(t, Knobs{})
	conn := b.dial()
	r := bufio.NewReader(conn)
	expect := func(want int) {
		t.Helper()
		if status, body := b.answer(r); status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
	for _, piece := range []string{"GET /api/v1/vmm.pi", "ng HTTP/1.1\r", "\n\r\n"} {
		if _, err := conn.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	expect(200)
	fmt.Fprint(conn, message("GET", "vm.info", "")+message("PUT", "vm.create", "{}")+message("GET", "vm.info", ""))
	expect(404)
	expect(204)
	expect(200)
	fmt.Fprint(conn, "nonsense\r\n\r\n")
	expect(400)
}

// TestOneAtATime: while a snapshot is slow nothing is answered, and what its
// client no longer waits for is not done.
func TestOneAtATime(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	b.booted(b.config(""))
	b.must("vm.pause", "")
	b.turn(Knobs{Slow: map[string]int{"vm.snapshot": 300}})
	slow := b.dial()
	folder := t.TempDir()
	fmt.Fprint(slow, message("PUT", "vm.snapshot", `{"destination_url":"file://`+folder+`"}`))
	await(t, "the snapshot's last event", func() bool { return slices.Contains(b.names(), "vm snapshotted") })
	if got := files(t, folder); len(got) != 0 {
		t.Errorf("there is %q with the event", got)
	}
	impatient := b.dial()
	fmt.Fprint(impatient, message("PUT", "vm.delete", ""))
	impatient.Close()
	if status, _ := b.get("vmm.ping"); status != http.StatusOK {
		t.Errorf("ping: %d", status)
	}
	if got := files(t, folder); len(got) != 3 {
		t.Errorf("pinged before the snapshot was there: %q", got)
	}
	if status, _ := b.answer(bufio.NewReader(slow)); status != http.StatusNoContent {
		t.Errorf("snapshot: %d", status)
	}
	if state := b.state(); state != "Paused" {
		t.Errorf("%s: nobody waited for the delete", state)
	}
}

func TestTooManyConnections(t *testing.T) {
	b := newBench(t, Knobs{})
	conns := make([]*bufio.Reader, maxConnections)
	for i := range conns {
		conn := b.dial()
		fmt.Fprint(conn, message("GET", "vmm.ping", ""))
		conns[i] = bufio.NewReader(conn)
		if status, _ := b.answer(conns[i]); status != http.StatusOK {
			t.Fatalf("connection %d: %d", i, status)
		}
	}
	conn := b.dial()
	if status, _ := b.answer(bufio.NewReader(conn)); status != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", status)
	}
}

func TestKnobs(t *testing.T) {
	b := newBench(t, Knobs{Version: "51.1.0", Flood: 3,
		Refuse: map[string][]string{"vm.boot": {"a", "b", "c"}},
		Answer: map[string]Answer{"vm.info": {Body: "garbage"}, "vm.counters": {Body: "[0,", Size: 1 << 20}, "vm.pause": {Raw: true, Body: "\x00\x01\r\n"}, "vm.nmi": {Status: 302}}})
	b.try(call{"GET", "vmm.ping", "", 200, "51.1.0"})
	b.try(call{"PUT", "vm.boot", "", 500, `["a","b","c"]`})
	b.try(call{"GET", "vm.info", "", 200, "garbage"})
	if status, body := b.get("vm.counters"); status != 200 || len(body) != 1<<20 {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	if status, _ := b.put("vm.pause", ""); status != 0 {
		t.Errorf("status %d", status)
	}
	if status, _ := b.put("vm.nmi", ""); status != 302 {
		t.Errorf("status %d", status)
	}
	if n := strings.Count(b.events.String(), "noise"); n != 6 {
		t.Errorf("%d events for 2 calls", n)
	}
	if _, err := parseKnobs([]byte(`{"slow":{}}`)); err == nil {
		t.Error("a knob that is misspelt is taken")
	}
}

func TestDies(t *testing.T) {
	for _, done := range []bool{false, true} {
		var words printed.Text
		b := newBench(t, Knobs{}, func(o *Options) { o.Stderr = &words })
		b.turn(Knobs{Die: map[string]Death{"vm.boot": {Code: 101, Words: "out of paper", Done: done}}})
		b.must("vm.create", b.config(""))
		if status, _ := b.put("vm.boot", ""); status != 0 {
			t.Errorf("status %d", status)
		}
		<-b.vmm.Exited()
		if code, _ := b.vmm.Code(); code != 101 || words.String() != "out of paper\n" {
			t.Errorf("code %d, words %q", code, words.String())
		}
		if booted := slices.Contains(b.names(), "vm booted"); booted != done {
			t.Errorf("booted: %v, want %v", booted, done)
		}
	}
	b := newBench(t, Knobs{Die: map[string]Death{"vm.delete": {Signal: 11}}})
	b.put("vm.delete", "")
	<-b.vmm.Exited()
	if code, signal := b.vmm.Code(); code != 0 || signal != 11 {
		t.Errorf("code %d, signal %d", code, signal)
	}
}

// TestHangs: a call that isn't answered is the client's to give up.
func TestHangs(t *testing.T) {
	b := newBench(t, Knobs{Answer: map[string]Answer{"vm.info": {Hang: true}}})
	conn := b.dial()
	fmt.Fprint(conn, message("GET", "vm.info", "")+message("GET", "vmm.ping", ""))
	if status, body := b.answer(bufio.NewReader(conn)); status != 200 || !strings.Contains(body, "pid") {
		t.Errorf("%d %s", status, body)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(message("GET", "vmm.ping", "")))
	f.Add([]byte(message("PUT", "vm.create", "{}") + message("GET", "vm.info", "")))
	f.Add([]byte("PUT http://h/ HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 51200\r\n\r\n"))
	f.Add(bytes.Repeat([]byte("a"), 3000))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(data)), maxLine)
		for read := 0; ; {
			r, err := readRequest(in)
			if err != nil {
				return
			}
			if read += len(r.body); len(r.body) != r.length || r.length > maxBody || read > len(data) {
				t.Errorf("a body of %d bytes of %d, %d of %d", len(r.body), r.length, read, len(data))
			}
		}
	})
}

func FuzzBodies(f *testing.F) {
	f.Add(`{"memory":{"size":1},"disks":[{"path":"a"}],"net":[{"mac":"00:11:22:33:44:55","fds":[1]}]}`)
	f.Add(`{"cpus":{"boot_vcpus":1,"max_vcpus":1,"features":{"amx":true}},"platform":{"uuid":"a"}}`)
	f.Add(`{"payload":{"kernel":"k"},"vsock":{"cid":3,"socket":"s"},"numa":[{"guest_numa_id":0,"pci_segments":[0]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var c, twice config
		if document([]byte(body), &c) != nil {
			return
		}
		again, err := asJSON(c)
		if err != nil {
			t.Fatal(err)
		}
		// What is kept is taken again, as a snapshot's configuration is.
		if err := document([]byte(again), &twice); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if back, err := asJSON(twice); err != nil || back != again {
			t.Errorf("%s\n%s\n%v", again, back, err)
		}
		c.validate()
		c.Memory.layout()
	})
}
