package qmp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

type status struct {
	Status  string `json:"status"`
	Running bool   `json:"running"`
}

// BenchmarkExecute is one call after the other, to a peer that does next to nothing.
func BenchmarkExecute(b *testing.B) {
	client := benchmarkClient(b)
	ctx := testContext(b)
	b.ReportAllocs()
	for b.Loop() {
		var s status
		if err := client.Execute(ctx, "query-status", nil, &s); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExecuteParallel is many callers at once.
func BenchmarkExecuteParallel(b *testing.B) {
	client := benchmarkClient(b)
	ctx := testContext(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var s status
			if err := client.Execute(ctx, "query-status", nil, &s); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkExecuteOnFake has the fake's strictness in it: it reads byte by byte.
func BenchmarkExecuteOnFake(b *testing.B) {
	server, client := startServer(b)
	server.Handle("query-status", qmptest.Args{}, qmptest.Return(status{"running", true}))
	ctx := testContext(b)
	for b.Loop() {
		if err := client.Execute(ctx, "query-status", nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEvents is a stream of events to one subscriber.
func BenchmarkEvents(b *testing.B) {
	near, far := net.Pipe()
	client := benchmarkNegotiate(b, near, far)
	sub := client.Subscribe()
	ctx := testContext(b)
	line := []byte(`{"timestamp": {"seconds": 1700000000, "microseconds": 123456}, "event": "RTC_CHANGE", "data": {"offset": 1, "qom-path": "/machine/rtc"}}` + "\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := far.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := sub.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkClient answers all that it is asked with one status, over a real socket.
func benchmarkClient(b *testing.B) *qmp.Client {
	listener, err := net.Listen("unix", b.TempDir()+"/monitor")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	near, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	return benchmarkNegotiate(b, near, far)
}

func benchmarkNegotiate(b *testing.B, near, far net.Conn) *qmp.Client {
	b.Cleanup(func() { far.Close() })
	go func() {
		fmt.Fprint(far, greetingLine)
		lines := bufio.NewScanner(far)
		for lines.Scan() {
			var r struct{ ID json.RawMessage }
			if json.Unmarshal(lines.Bytes(), &r) != nil {
				return
			}
			fmt.Fprintf(far, `{"return": {"status": "running", "running": true}, "id": %s}`+"\r\n", r.ID)
		}
	}()
	client, err := qmp.New(testContext(b), near)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client
}
