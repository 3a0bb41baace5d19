package qmptest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// Two calls wait, and the second is answered first.
func ExampleHandler() {
	dir, err := os.MkdirTemp("", "qmptest")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server, err := qmptest.Start(filepath.Join(dir, "monitor"))
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	held := make(chan *qmptest.Request)
	server.Handle("query-block", qmptest.Args{}, func(r *qmptest.Request) { held <- r })

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := qmp.Dial(ctx, server.Path())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	var names [2]string
	var calls sync.WaitGroup
	var requests [2]*qmptest.Request
	for i := range names {
		calls.Go(func() {
			if err := client.Execute(ctx, "query-block", nil, &names[i]); err != nil {
				log.Print(err)
			}
		})
		requests[i] = <-held
	}
	requests[1].Return("second")
	requests[0].Return("first")
	calls.Wait()
	fmt.Println(names)
	// Output: [first second]
}
