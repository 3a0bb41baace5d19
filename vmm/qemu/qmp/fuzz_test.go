package qmp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// FuzzReader lets a hostile peer send anything, before or after the negotiation.
// However that goes, every waiter's end is ErrDisconnected, and no event is larger
// than the bound on messages.
func FuzzReader(f *testing.F) {
	const bound = 8 << 10
	for _, seed := range []string{
		"", "\r\n \n", greetingLine, "(qemu) ", "{", "null\n", "[]\n", "{}\n", "\xff\xfe\n", `{"event": 1}` + "\n",
		`{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}` + "\r\n" + `{"event": "SHUTDOWN", "data": {"guest": false}}` + "\n",
		`{"event": "X", "timestamp": {"seconds": -9223372036854775808, "microseconds": 9223372036854775807}}` + "\n",
		`{"return": {}, "id": 1}` + "\n" + `{"return": null}` + "\n" + `{"error": null, "id": {"a": [1]}}` + "\n",
		`{"error": {"class": "GenericError", "desc": "x"}}` + "\n", `{"error": [], "id": 1}` + "\n",
		`{"QMP": null}` + "\n", `{"QMP": {"version": {"qemu": {"major": 1e99}}}}` + "\n", `{"QMP": {"capabilities": [1, {}, "oob"]}}` + "\n",
		strings.Repeat("[", 4000) + "\n", `{"event": "` + strings.Repeat("x", bound) + `"}` + "\n", strings.Repeat(" ", 3*bound),
	} {
		f.Add(true, []byte(seed))
		f.Add(false, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, negotiate bool, data []byte) {
		near, far := net.Pipe()
		defer far.Close()
		go func() {
			p := &peer{t, far, bufio.NewReader(far)}
			if negotiate {
				p.send(greetingLine)
				p.reply(p.receive(), `{}`)
			}
			go io.Copy(io.Discard, p.r)
			far.Write(data)
			far.Close()
		}()
		client, err := qmp.New(testContext(t), near, qmp.WithMaxMessageSize(bound))
		if err != nil {
			if !errors.Is(err, qmp.ErrDisconnected) {
				t.Fatal(err)
			}
			return
		}
		defer client.Close()
		sub := client.SubscribeWithCapacity(2)
		call := client.Execute(testContext(t), "query-status", nil, nil)
		if call == nil || !errors.Is(call, qmp.ErrDisconnected) {
			t.Errorf("Execute: %v", call)
		}
		for {
			event, err := sub.Next(testContext(t))
			var missed *qmp.MissedError
			switch {
			case errors.As(err, &missed):
			case errors.Is(err, qmp.ErrDisconnected):
				return
			case err != nil:
				t.Fatal(err)
			case event.Name == "" || len(event.Name)+len(event.Data) > 4*bound:
				t.Fatalf("event %.100q with %d bytes of data", event.Name, len(event.Data))
			}
		}
	})
}
