package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/vmlet/vmlet/shim"
)

// most is how long a text in a message of the largest size may be, in bytes.
const most = shim.MaxPodMessage - 1<<10

// repeated is a list of as many values as have room.
func repeated(value string, bytes int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(value+",", bytes/(len(value)+1)), ",") + "]"
}

// welcomes takes many times its size in memory, if all of it is decoded.
func welcomes(conn *net.UnixConn) {
	var r shim.Request
	if _, err := shim.NewWire(conn).Receive(&r); err != nil {
		return
	}
	body := fmt.Appendf(nil, `{"id":%d,"body":{"major":1,"minor":2,"pod":{"runDir":"/run/vmlet","runId":"lie"},"plan":{"files":%s}}}`, r.ID, repeated("{}", 4<<20-1<<10))
	_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	mute(conn)
}

// events never end, and have the largest size.
func events(conn *net.UnixConn) {
	wire := shim.NewWire(conn)
	if !welcome(wire, shim.Welcome{}) {
		return
	}
	text := strings.Repeat("x", most)
	for wire.Send(shim.Message{Event: &shim.Event{Damaged: text}}) == nil &&
		wire.Send(shim.Message{Event: &shim.Event{Exit: &shim.Exit{LastWords: text}}}) == nil &&
		wire.Send(shim.Message{Event: &shim.Event{Note: json.RawMessage(repeated("0", most))}}) == nil {
	}
}

// largeAnswers are to what was not asked, and at last a large error to what was.
func largeAnswers(conn *net.UnixConn) {
	wire := shim.NewWire(conn)
	if !welcome(wire, shim.Welcome{}) {
		return
	}
	text := strings.Repeat("x", most)
	for {
		var r shim.Request
		if _, err := wire.Receive(&r); err != nil {
			return
		}
		for range 16 {
			_ = wire.Send(shim.Message{ID: r.ID, Progress: &shim.Progress{Step: text}})
			_ = wire.Send(shim.Message{ID: r.ID + 1, Body: json.RawMessage(repeated("0", most))})
		}
		if wire.Send(shim.Message{ID: r.ID, Error: &shim.Error{Code: shim.CodeInternal, Message: text}}) != nil {
			return
		}
	}
}

// kept is a lease that takes many times its size.
func kept(conn *net.UnixConn) {
	adoptedAs(`{"vmm":"qemu","manifest":{"disks":` + repeated("{}", 80<<10) + `}}`)(conn)
}

// values are as many as have room, in what is said of the VM and of the VMMs.
func values(conn *net.UnixConn) {
	answers(conn, shim.Welcome{}, shim.Described{
		Specification: []byte("labels: " + repeated("[]", 60<<10)), SpecificationName: "/guest/values.yaml",
		VMMs: json.RawMessage(`[{"name":"qemu","said":{"binary":"/x","details":{"machines":` + repeated("{}", 40<<10) + `}}}]`),
	})
}

// lease is what an agent has had kept that has launched a VM.
const lease = `{"vmm":"qemu","manifest":{"vmm":{"name":"qemu","version":"1"},"accelerator":"emulation",
	"planExtras":{"id":"0a1b2c3d-1111-4222-8333-444455556666"},"specification":{"name":"liar","memory":{"size":"16Mi"}}}}`

// adoptedAs claims that a VM runs already, which was launched with that.
func adoptedAs(lease string) func(*net.UnixConn) {
	return func(conn *net.UnixConn) {
		answers(conn, shim.Welcome{VMMPID: 1, PID: 1, Keep: json.RawMessage(lease)}, shim.Described{
			Specification: []byte("name: liar\nmemory: {size: 16Mi}\n"), SpecificationName: "/guest/plain.yaml",
			VMMs: json.RawMessage(`[{"name":"qemu","said":{"binary":"/x","version":"1","details":{"arch":"amd64"}}}]`),
		})
	}
}

// floodMonitor is QEMU's monitor: it answers, and tells of things without end.
func floodMonitor(conn *net.UnixConn) {
	_, _ = io.WriteString(conn, `{"QMP":{"version":{"qemu":{"major":9,"minor":0,"micro":0},"package":""},"capabilities":[]}}`+"\n")
	asked := make(chan string)
	go func() {
		defer close(asked)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			var r struct{ ID, Execute string }
			_ = json.Unmarshal(lines.Bytes(), &r)
			reply := `{}`
			switch {
			case r.Execute == "query-status":
				reply = `{"running":true,"status":"running"}`
			case strings.HasPrefix(r.Execute, "query-"):
				reply = repeated("{}", 1<<20-1<<10)
			}
			asked <- fmt.Sprintf(`{"return":%s,"id":%q}`+"\n", reply, r.ID)
		}
	}()
	event := `{"event":"FLOOD","data":{"x":"` + strings.Repeat("x", 64<<10) + `"},"timestamp":{"seconds":1,"microseconds":1}}` + "\n"
	for {
		select {
		case reply, more := <-asked:
			if _, err := io.WriteString(conn, reply); err != nil || !more {
				return
			}
		default:
			if _, err := io.WriteString(conn, event); err != nil {
				return
			}
		}
	}
}
