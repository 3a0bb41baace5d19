package qmp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// script is sent line by line to a monitor. It has all that a client may do wrong.
var script = []string{
	`{"execute":"query-status","id":1}`,
	`{"execute":"no-such","id":2}`,
	`garbage`,
	`{"execute":"qmp_capabilities","arguments":{"enable":["foo"]},"id":3}`,
	`{"execute":"qmp_capabilities","arguments":{"enable":"foo"},"id":3}`,
	`{"execute":"qmp_capabilities","arguments":{"x":1},"id":3}`,
	`{"execute":"qmp_capabilities","id":{"a":[1]}}`,
	`{"execute":"qmp_capabilities","id":4}`,
	`{"execute":"no-such","id":5}`,
	`{"execute":"query-status","arguments":{"x":1},"id":6}`,
	`{"execute":"getfd","arguments":{},"id":7}`,
	`{"execute":"getfd","arguments":{"fdname":1},"id":8}`,
	`{"execute":"getfd","arguments":{"fdname":"a"},"id":9}`,
	`{"execute":"add-fd","id":10}`,
	`{"execute":"add-fd","arguments":{"opaque":true},"id":10}`,
	`{"execute":"query-status","bogus":1,"id":11}`,
	`{"id":12}`,
	`{"execute":1,"id":13}`,
	`{"execute":"query-status","arguments":[],"id":14}`,
	`{"execute":"query-status","arguments":null,"id":14}`,
	`[1]`,
	`1`,
	`{"execute":"query-status"}`,
	`{"execute":"query-status","id":null}`,
	`{"execute":"balloon","arguments":{"value":1.5},"id":15}`,
	`{"execute":"balloon","arguments":{"value":"1"},"id":16}`,
	`{"execute":"balloon","arguments":{"value":null},"id":16}`,
	`{"execute":"balloon","arguments":{"value":15},"id":17}`,
	`{"execute":"device_del","arguments":{"id":"x"},"id":18}`,
	`{"execute": foo}`,
	`{"exec-oob":"query-status","id":20}`,
	`}`,
	`{"execute":"query-status","execute":"query-status","id":21}`,
	"\xff",
	`{"execute":"query-status","id":"\u00e4"}`,
	`{"execute":"query-status","id":22}`,
}

// outcome is what of a reply has to be alike: not the words, not the status.
type outcome struct {
	ID    any
	Class qmp.ErrorClass // empty for success
}

// TestFakeIsAsStrictAsQEMU sends the same to both and compares what comes back.
func TestFakeIsAsStrictAsQEMU(t *testing.T) {
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "monitor"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	takeFile := func(r *qmptest.Request) {
		file, err := r.File()
		if err != nil {
			r.Fail(err)
			return
		}
		file.Close()
		r.Return(nil)
	}
	server.Handle("query-status", qmptest.Args{}, qmptest.Return(map[string]any{"status": "running"}))
	server.Handle("getfd", qmptest.Args{"fdname": qmptest.Str}, takeFile)
	server.Handle("add-fd", qmptest.Args{"*fdset-id": qmptest.Int, "*opaque": qmptest.Str}, takeFile)
	server.Handle("balloon", qmptest.Args{"value": qmptest.Int}, qmptest.Fail(&qmp.Error{Class: qmp.DeviceNotActive, Desc: "No balloon device has been activated"}))
	server.Handle("device_del", qmptest.Args{"id": qmptest.Str}, qmptest.Fail(&qmp.Error{Class: qmp.DeviceNotFound, Desc: "Device not found"}))
	fake := play(t, server.Path())
	forEachQEMU(t, func(t *testing.T, binary string) {
		real := play(t, startQEMU(t, binary, 1).monitors[0])
		for i, line := range script {
			got, _ := json.Marshal(fake[i])
			want, _ := json.Marshal(real[i])
			if string(got) != string(want) {
				t.Errorf("%s\nthe fake: %s\nQEMU:     %s", line, got, want)
			}
		}
	})
}

// play sends the script to a monitor, waiting for the reply to each line.
func play(t *testing.T, path string) []outcome {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	suites.Bound(t, conn, patience)
	replies := bufio.NewScanner(conn)
	replies.Scan() // the greeting
	outcomes := make([]outcome, len(script))
	for i, line := range script {
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		if !replies.Scan() {
			t.Fatalf("%s: %v", line, replies.Err())
		}
		var reply struct {
			ID    any
			Error struct{ Class qmp.ErrorClass }
		}
		if err := json.Unmarshal(replies.Bytes(), &reply); err != nil {
			t.Fatal(err)
		}
		outcomes[i] = outcome{reply.ID, reply.Error.Class}
	}
	return outcomes
}

// TestFakeDropsEvents: no event before the negotiation, as with QEMU.
func TestFakeDropsEvents(t *testing.T) {
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "monitor"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if server.Emit("STOP", nil) {
		t.Error("an event went to nobody")
	}
	conn, err := net.Dial("unix", server.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := bufio.NewReader(conn).ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	if server.Emit("STOP", nil) {
		t.Error("an event was sent before the negotiation")
	}
}

func TestFakeCloses(t *testing.T) {
	server, client := startServer(t)
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-client.Done()
	if err := client.Err(); !errors.Is(err, qmp.ErrDisconnected) {
		t.Error(err)
	}
	if server.Emit("STOP", nil) || server.SendRaw(nil) == nil {
		t.Error("a closed server still sends")
	}
}
