package chapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// FuzzReply lets a hostile VMM answer anything. Each call ends, by a result, a
// refusal that is fit to print, or an error of one of the kinds there are.
func FuzzReply(f *testing.F) {
	info, err := os.ReadFile("testdata/info.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		"", noContent, response(200, "{}"), response(200, string(info)), response(200, `{"a":{"b":1}}`), response(404, `["a","b"]`), response(500, `{"error":"x"}`),
		"HTTP/1.1 503\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 200 \r\nContent-Length: 99999999999\r\n\r\n",
		"HTTP/1.1 200 \r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.0 200 OK\nContent-Length:2\n\n{}", "HTTP/1.1 100 \r\n\r\n" + noContent, "\r\n\r\n", "HTTP/1.1 500 \r\nContent-Length: 4\r\n\r\n[\"\xff\"]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		client := chapi.New(func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				far.Read(make([]byte, 4096))
				far.Write(data)
			}()
			return near, nil
		}, chapi.WithMaxReply(8<<10))
		for _, call := range []func(context.Context) error{
			client.Boot,
			func(ctx context.Context) error { _, err := client.Counters(ctx); return err },
			func(ctx context.Context) error {
				info, err := client.Info(ctx)
				if err == nil {
					checkAgain(t, info)
				}
				return err
			},
		} {
			checkKind(t, call(testContext(t)))
		}
	})
}

// checkAgain: what was read can be written, and read to the same.
func checkAgain(t *testing.T, info chapi.Info) {
	first, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	var again chapi.Info
	if err := json.Unmarshal(first, &again); err != nil {
		t.Fatal(err)
	}
	if second, err := json.Marshal(again); err != nil || string(first) != string(second) {
		t.Errorf("%s becomes %s, %v", first, second, err)
	}
}

func checkKind(t *testing.T, err error) {
	var refused *chapi.Error
	switch {
	case err == nil || errors.Is(err, chapi.ErrProtocol) || errors.Is(err, chapi.ErrDisconnected):
	case errors.As(err, &refused):
		if len(refused.Causes) > 16 || len(refused.Error()) > 17*1100 {
			t.Errorf("a refusal of %d causes, %d bytes", len(refused.Causes), len(refused.Error()))
		}
		for _, r := range refused.Error() {
			if r < ' ' || r == 0x7f {
				t.Errorf("not fit to print: %q", refused.Error())
			}
		}
	default:
		t.Errorf("%v", err)
	}
}
