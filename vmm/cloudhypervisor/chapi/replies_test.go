package chapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// TestErrors: what the VMM refuses with.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		reply  string
		causes []string
		is     error
		isNot  []error
	}{
		"chain": {
			response(500, `["Error from API","The VM could not boot","Cannot open the kernel file","No such file or directory (os error 2)"]`),
			[]string{"Error from API", "The VM could not boot", "Cannot open the kernel file", "No such file or directory (os error 2)"},
			nil, []error{chapi.ErrNotCreated, chapi.ErrBusy, chapi.ErrUnknownCall, chapi.ErrOutcomeUnknown, chapi.ErrDisconnected},
		},
		"not created": {
			response(404, `["Error from API","The VM info is not available","VM is not created"]`),
			[]string{"Error from API", "The VM info is not available", "VM is not created"},
			chapi.ErrNotCreated, []error{chapi.ErrUnknownCall},
		},
		"no such call":      {response(404, `["Not Found"]`), []string{"Not Found"}, chapi.ErrUnknownCall, []error{chapi.ErrNotCreated}},
		"vCPUs leaving":     {response(429, `["Too Many Requests"]`), []string{"Too Many Requests"}, chapi.ErrBusy, nil},
		"server full":       {"HTTP/1.1 503\r\nConnection: close\r\nContent-Length: 40\r\n\r\n{ \"error\": \"Too many open connections\" }", []string{"Too many open connections"}, chapi.ErrBusy, nil},
		"server's own":      {response(400, "{ \"error\": \"Invalid header.\nAll dropped.\" }"), []string{`{ "error": "Invalid header. All dropped." }`}, nil, nil},
		"no body":           {response(400, ""), nil, nil, []error{chapi.ErrProtocol}},
		"no length":         {"HTTP/1.1 400 Bad Request\r\n\r\n", nil, nil, nil},
		"redirection":       {response(302, "[]"), nil, nil, nil},
		"escapes":           {response(500, `["\u001b[31mred\r\nline","",  "\u202e\u0007"]`), []string{"[31mred line"}, nil, nil},
		"many causes":       {response(500, "["+strings.Repeat(`"c",`, 999)+`"c"]`), slices.Repeat([]string{"c"}, 16), nil, nil},
		"a long cause":      {response(500, `["`+strings.Repeat("c", 5000)+`"]`), []string{strings.Repeat("c", 1024) + "..."}, nil, nil},
		"causes of a kind":  {response(500, `["a", 1]`), []string{`["a", 1]`}, nil, nil},
		"half a character":  {response(500, `["`+strings.Repeat("c", 1023)+`é"]`), []string{strings.Repeat("c", 1023) + "..."}, nil, nil},
		"an object, no sad": {response(500, `{"sad": true}`), []string{`{"sad": true}`}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := replying(t, c.reply)
			err := client.Boot(testContext(t))
			var refused *chapi.Error
			if !errors.As(err, &refused) || refused.Call != "vm.boot" {
				t.Fatalf("%v, want an *Error", err)
			}
			if !slices.Equal(refused.Causes, c.causes) {
				t.Errorf("causes %q, want %q", refused.Causes, c.causes)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			for _, other := range c.isNot {
				if errors.Is(err, other) {
					t.Errorf("%v is %v", err, other)
				}
			}
			t.Log(err)
		})
	}
}

// TestBadReplies: what is no reply. None may be taken for success, and none may
// leave open whether the request was sent.
func TestBadReplies(t *testing.T) {
	const head = "HTTP/1.1 200 \r\n"
	for name, c := range map[string]struct {
		reply string
		want  error
	}{
		"nothing":             {"", chapi.ErrDisconnected},
		"half a status line":  {"HTTP/1.1 20", chapi.ErrDisconnected},
		"half a head":         {head + "Server: x\r\n", chapi.ErrDisconnected},
		"half a body":         {head + "Content-Length: 9\r\n\r\n{}", chapi.ErrDisconnected},
		"no HTTP":             {"{}\n", chapi.ErrProtocol},
		"HTTP/2":              {"HTTP/2 200 \r\n\r\n", chapi.ErrProtocol},
		"interim":             {"HTTP/1.1 100 \r\n\r\n", chapi.ErrProtocol},
		"status of letters":   {"HTTP/1.1 OKE \r\n\r\n", chapi.ErrProtocol},
		"status with a sign":  {"HTTP/1.1 +20 \r\n\r\n", chapi.ErrProtocol},
		"status 999":          {"HTTP/1.1 999 \r\n\r\n", chapi.ErrProtocol},
		"header without name": {head + ": x\r\n\r\n", chapi.ErrProtocol},
		"negative length":     {head + "Content-Length: -1\r\n\r\n", chapi.ErrProtocol},
		"two lengths":         {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", chapi.ErrProtocol},
		"chunks":              {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", chapi.ErrProtocol},
		"huge length":         {head + "Content-Length: 9223372036854775807\r\n\r\n{}", chapi.ErrTooLong},
		"length beyond":       {head + "Content-Length: 1001\r\n\r\n{}", chapi.ErrTooLong},
		"endless status line": {strings.Repeat("x", 1<<16), chapi.ErrProtocol},
		"endless header":      {head + "X: " + strings.Repeat("x", 1<<16), chapi.ErrTooLong},
		"endless headers":     {head + strings.Repeat("X: x\r\n", 1<<16), chapi.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			client := listen(t, func(conn *net.UnixConn) {
				if _, err := receive(conn); err != nil {
					t.Error(err)
				}
				io.WriteString(conn, c.reply) // fails if the client has had enough
				conn.CloseWrite()
				io.Copy(io.Discard, conn)
			}, chapi.WithMaxReply(1000))
			_, err := client.Info(testContext(t))
			if !errors.Is(err, c.want) || !errors.Is(err, chapi.ErrOutcomeUnknown) {
				t.Errorf("%v, want %v and ErrOutcomeUnknown", err, c.want)
			}
			t.Log(err)
		})
	}
}

// TestBadResults: a reply that was whole and says something else.
func TestBadResults(t *testing.T) {
	for _, body := range []string{"{", "[]", `"x"`, `{"state": 1}`, `{"config": []}`, `{"device_tree": {"a": 1}}`, strings.Repeat("[", 20_000)} {
		client, _ := replying(t, response(200, body))
		if info, err := client.Info(testContext(t)); !errors.Is(err, chapi.ErrProtocol) || errors.Is(err, chapi.ErrOutcomeUnknown) {
			t.Errorf("%.40q: %+v, %v", body, info, err)
		}
	}
	// Few bytes that would become much memory.
	client, _ := replying(t, response(200, `{"config":{"disks":[{}`+strings.Repeat(",{}", 100_000)+`]}}`))
	if _, err := client.Info(testContext(t)); !errors.Is(err, chapi.ErrTooLong) {
		t.Error(err)
	}
	// An add before boot has no result; a body of nothing is the same.
	for _, reply := range []string{noContent, response(200, "")} {
		client, _ := replying(t, reply)
		if added, err := client.AddDisk(testContext(t), chapi.Disk{}); err != nil || added.ID != "" {
			t.Errorf("%+v, %v", added, err)
		}
	}
}

func TestPing(t *testing.T) {
	client, _ := replying(t, response(200, `{"build_version":"v53.0.0-1-gabc","version":"53.0.0","pid":42,"features":["kvm","io_uring"],"mood":"fine"}`))
	got, err := client.Ping(testContext(t))
	want := chapi.VMM{
		Version: "53.0.0", BuildVersion: "v53.0.0-1-gabc", PID: 42, Features: []string{"kvm", "io_uring"},
		Extra: chapi.Extra{"mood": json.RawMessage(`"fine"`)},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestInfo reads testdata/info.json, which has members from a future at every level,
// and writes its configuration back.
func TestInfo(t *testing.T) {
	body, err := os.ReadFile("testdata/info.json")
	if err != nil {
		t.Fatal(err)
	}
	client, _ := replying(t, response(200, string(body)))
	info, err := client.Info(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.State != chapi.StatePaused || info.MemoryActual != 1<<30 || info.Address("_disk0") != "0000:00:03.0" || info.Address("none") != "" ||
		info.Devices["_disk0"].Parent != "__pci" || info.Config.CPUs.Boot != 2 || info.Config.Disks[0].Slot == nil || info.Config.Disks[0].Type != chapi.ImageRaw {
		t.Errorf("%+v", info)
	}
	var want, got struct {
		Config any `json:"config"`
	}
	again, err := json.Marshal(map[string]any{"config": info.Config})
	if err != nil {
		t.Fatal(err)
	}
	if json.Unmarshal(again, &got) != nil || json.Unmarshal(body, &want) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the configuration comes back as %s", again)
	}
}

// TestKeepsOnlyUnknown: a member that has a field is written once, from the field.
func TestKeepsOnlyUnknown(t *testing.T) {
	var disk chapi.Disk
	if err := json.Unmarshal([]byte(`{"id":"a","Path":"/x","new":[1, 2],"<":null}`), &disk); err != nil {
		t.Fatal(err)
	}
	disk.Path = "/y"
	disk.Extra["path"] = json.RawMessage(`"/z"`)
	got, err := json.Marshal(disk)
	if want := `{"id":"a","path":"/y","\u003c":null,"new":[1,2]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := json.Marshal(chapi.Disk{Extra: chapi.Extra{"new": json.RawMessage(`}`)}}); err == nil {
		t.Error("a broken member was written")
	}
	if got, _ := json.Marshal(chapi.Payload{Extra: chapi.Extra{"igvm": json.RawMessage(`"/i"`)}}); string(got) != `{"igvm":"/i"}` {
		t.Errorf("%s", got)
	}
}

// TestCounters: a latency that was never measured is the largest number there is,
// which no signed integer holds.
func TestCounters(t *testing.T) {
	client, _ := replying(t, response(200, `{"disk0":{"read_bytes":4096,"read_latency_min":18446744073709551615,"new":"x","less":-1,"part":0.5,"none":null},"net0":{}}`))
	got, err := client.Counters(testContext(t))
	want := chapi.Counters{"disk0": {"read_bytes": 4096, "read_latency_min": chapi.Unmeasured}, "net0": {}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestBodyLimit: 51,200 bytes go and not one more, and then nothing is sent.
func TestBodyLimit(t *testing.T) {
	client, seen := replying(t, noContent)
	config := func(n int) *chapi.VMConfig {
		return &chapi.VMConfig{Payload: &chapi.Payload{Cmdline: strings.Repeat("c", n)}}
	}
	fits := chapi.MaxBody - len(`{"payload":{"cmdline":""}}`)
	if err := client.Create(testContext(t), config(fits)); err != nil {
		t.Fatal(err)
	}
	if e := <-seen; !bytes.Contains(e.request, []byte("Content-Length: 51200\r\n")) {
		t.Errorf("%.100q", e.request)
	}
	err := client.Create(testContext(t), config(fits+1))
	if !errors.Is(err, chapi.ErrNotSent) || !strings.Contains(err.Error(), "51201") {
		t.Error(err)
	}
	if len(seen) > 0 {
		t.Error("it was sent")
	}
}

func TestFolders(t *testing.T) {
	client := chapi.New(func(context.Context) (net.Conn, error) { t.Error("connected"); return nil, io.EOF })
	for _, folder := range []string{"", "relative", "file:///x", "/\xff"} {
		if err := client.Snapshot(testContext(t), folder); !errors.Is(err, chapi.ErrNotSent) {
			t.Errorf("%q: %v", folder, err)
		}
		if err := client.Restore(testContext(t), chapi.Restore{Folder: folder}); !errors.Is(err, chapi.ErrNotSent) {
			t.Errorf("%q: %v", folder, err)
		}
	}
}

// TestNobody: a socket that isn't there, or that nobody listens on.
func TestNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api")
	client := chapi.New(dialer(path))
	check := func(cause error) {
		t.Helper()
		err := client.Boot(testContext(t))
		if !errors.Is(err, chapi.ErrDisconnected) || !errors.Is(err, chapi.ErrNotSent) || !errors.Is(err, cause) || errors.Is(err, chapi.ErrOutcomeUnknown) {
			t.Error(err)
		}
	}
	check(syscall.ENOENT)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	check(syscall.ECONNREFUSED)
}
