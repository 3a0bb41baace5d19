// Command liar is what a pod runs whose owner wishes the node's agent ill: it takes the
// place of vmlet-shim in the pod's volume, and lies.
//
//	liar WAY    nonsense, length, message, mute, flood, adopted, described, symlink or folder,
//	            and, to take its memory: welcome, events, answers, kept, values or monitor
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vmlet/vmlet/shim"
)

const volume = "/run/vmlet"

func main() {
	if err := lie(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "liar:", err)
		os.Exit(1)
	}
	// As a container's first process it would else not hear of it.
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
}

func lie(way string) error {
	socket := filepath.Join(volume, shim.SocketName)
	switch way {
	case "symlink": // on the node it is the agent's own
		return os.Symlink("/run/vmlet/vmlet.sock", socket)
	case "folder":
		return os.Mkdir(socket, 0o755)
	}
	answer, known := map[string]func(*net.UnixConn){
		"nonsense": nonsense, "length": length, "message": message, "mute": mute, "flood": flood,
		"adopted": adopted, "described": described,
		"welcome": welcomes, "events": events, "answers": largeAnswers, "kept": kept, "values": values, "monitor": adoptedAs(lease),
	}[way]
	if !known {
		return fmt.Errorf("%q is no way to lie", way)
	}
	if way == "monitor" {
		monitor, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(volume, "qmp.sock"), Net: "unix"})
		if err != nil {
			return err
		}
		go serve(monitor, floodMonitor)
	}
	listener, err := shim.Listen(volume)
	if err != nil {
		return err
	}
	go serve(listener, answer)
	return nil
}

func serve(listener *net.UnixListener, answer func(*net.UnixConn)) {
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			answer(conn)
		}()
	}
}

// nonsense is another protocol's.
func nonsense(conn *net.UnixConn) {
	_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
	mute(conn)
}

// length announces more than there can be, and sends without end.
func length(conn *net.UnixConn) {
	_, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff})
	for piece := make([]byte, 64<<10); ; {
		if _, err := conn.Write(piece); err != nil {
			return
		}
	}
}

// message is as large as one may be, and nested as deep as that allows.
func message(conn *net.UnixConn) {
	body := []byte(`{"id":1,"body":` + strings.Repeat("[", shim.MaxMessage-15))
	_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	mute(conn)
}

// mute hears and says nothing.
func mute(conn *net.UnixConn) { _, _ = io.Copy(io.Discard, conn) }

// flood welcomes, and then tells of things that nobody has asked for.
func flood(conn *net.UnixConn) {
	wire := shim.NewWire(conn)
	if !welcome(wire, shim.Welcome{}) {
		return
	}
	for {
		for _, m := range []shim.Message{
			{Event: &shim.Event{Damaged: strings.Repeat("damaged ", 1<<10)}},
			{ID: 2, Progress: &shim.Progress{Step: strings.Repeat("step ", 1<<10)}},
			{ID: 1 << 60, Body: json.RawMessage(`{}`)},
		} {
			if wire.Send(m) != nil {
				return
			}
		}
	}
}

// adopted claims that a VM runs already, which is that of another process: the
// node's first.
func adopted(conn *net.UnixConn) {
	answers(conn, shim.Welcome{
		VMMPID: 1, PID: 1,
		Keep: json.RawMessage(`{"runId":"../../..","uid":0,"vmm":"qemu","cgroup":{"version":1,"paths":{"memory":"/"}},"memory":"/etc/passwd","device":"/dev/sda"}`),
	}, shim.Described{
		Specification: []byte("name: first\nmemory: {size: 16Mi}\n"), SpecificationName: "/guest/plain.yaml", VMMs: json.RawMessage("[]"),
	})
}

// described says of itself what makes no sense.
func described(conn *net.UnixConn) {
	answers(conn, shim.Welcome{}, shim.Described{
		Specification: []byte("name: ../../guests/first\nlabels: &a [*a]\n"), SpecificationName: strings.Repeat("\x1b[2J", 1<<13),
		VMMs: json.RawMessage(`[{"name":"qemu","said":{"binary":"/usr/bin/id","machines":[null]}},{"name":"qemu","error":"` + strings.Repeat("x", 1<<16) + `"}]`),
	})
}

// answers says the same to whoever asks.
func answers(conn *net.UnixConn, w shim.Welcome, d shim.Described) {
	wire := shim.NewWire(conn)
	if !welcome(wire, w) {
		return
	}
	for {
		var r shim.Request
		if _, err := wire.Receive(&r); err != nil {
			return
		}
		var body any = struct{}{}
		if r.Op == shim.OpDescribe {
			body = d
		}
		if send(wire, r.ID, body) != nil {
			return
		}
	}
}

// welcome answers the first request as a shim in a pod does.
func welcome(wire *shim.Wire, w shim.Welcome) bool {
	var r shim.Request
	if _, err := wire.Receive(&r); err != nil {
		return false
	}
	w.Major, w.Minor, w.Pod = shim.VersionMajor, shim.VersionMinor, &shim.Pod{RunDir: volume, RunID: "lie"}
	return send(wire, r.ID, w) == nil
}

func send(wire *shim.Wire, id uint64, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return wire.Send(shim.Message{ID: id, Body: b})
}
