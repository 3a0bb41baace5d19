package qmp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// exampleMonitor stands in for a VM.
func exampleMonitor() (server *qmptest.Server, stop func()) {
	dir, err := os.MkdirTemp("", "qmp")
	if err != nil {
		log.Fatal(err)
	}
	server, err = qmptest.Start(filepath.Join(dir, "monitor"))
	if err != nil {
		log.Fatal(err)
	}
	server.Handle("query-status", qmptest.Args{}, qmptest.Return(map[string]any{"status": "running", "running": true}))
	server.Handle("stop", qmptest.Args{}, func(r *qmptest.Request) {
		server.Emit("STOP", nil)
		r.Return(nil)
	})
	server.Handle("getfd", qmptest.Args{"fdname": qmptest.Str}, func(r *qmptest.Request) {
		file, err := r.File()
		if err != nil {
			r.Fail(err)
			return
		}
		defer file.Close()
		r.Return(nil)
	})
	return server, func() { server.Close(); os.RemoveAll(dir) }
}

func Example() {
	server, stop := exampleMonitor()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := qmp.Dial(ctx, server.Path())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	var status struct {
		Status  string `json:"status"`
		Running bool   `json:"running"`
	}
	if err := client.Execute(ctx, "query-status", nil, &status); err != nil {
		log.Fatal(err)
	}
	fmt.Println("QEMU", client.Greeting().Version, "is", status.Status)
	// Output: QEMU 10.0.2 is running
}

// Subscribe before the command, then wait for what it brings about.
func ExampleClient_Subscribe() {
	server, stop := exampleMonitor()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := qmp.Dial(ctx, server.Path())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	events := client.Subscribe("STOP", "SHUTDOWN")
	defer events.Close()
	if err := client.Execute(ctx, "stop", nil, nil); err != nil {
		log.Fatal(err)
	}
	event, err := events.Next(ctx)
	var missed *qmp.MissedError
	switch {
	case errors.As(err, &missed):
		fmt.Println("query-status now, as", missed.Dropped, "events are lost")
	case errors.Is(err, qmp.ErrDisconnected):
		fmt.Println("the VM has gone")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(event.Name)
	}
	// Output: STOP
}

func ExampleClient_ExecuteWithFiles() {
	server, stop := exampleMonitor()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := qmp.Dial(ctx, server.Path())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	file, err := os.Open(os.DevNull)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close() // QEMU has its own descriptor when the call returns
	err = client.ExecuteWithFiles(ctx, "getfd", map[string]string{"fdname": "state"}, nil, file)
	fmt.Println(err)
	// Output: <nil>
}

// Errors are told apart by class.
func ExampleErrorClass() {
	server, stop := exampleMonitor()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := qmp.Dial(ctx, server.Path())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Execute(ctx, "query-future", nil, nil)
	fmt.Println(errors.Is(err, qmp.CommandNotFound))
	fmt.Println(err)
	// Output:
	// true
	// QMP command query-future: The command query-future has not been found (CommandNotFound)
}
