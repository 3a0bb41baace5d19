package qmp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// TestSilent: a QEMU that hangs is not waited for for ever, and is spoken to again when it
// doesn't hang any more.
func TestSilent(t *testing.T) {
	server, client := startServer(t, qmp.WithPatience(50*time.Millisecond))
	held := make(chan *qmptest.Request, 1)
	server.Handle("stop", qmptest.Args{}, func(r *qmptest.Request) { held <- r })
	server.Handle("query-status", qmptest.Args{}, qmptest.Return(struct{}{}))
	err := qmp.ErrNotSent
	for errors.Is(err, qmp.ErrNotSent) { // on a busy machine
		err = client.Execute(testContext(t), "stop", nil, nil)
		if !errors.Is(err, qmp.ErrSilent) {
			t.Fatalf("a command that isn't answered: %v", err)
		}
	}
	request := <-held
	request.Return(struct{}{})
	for {
		err := client.Execute(testContext(t), "query-status", nil, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, qmp.ErrSilent) {
			t.Fatalf("one that is answered: %v", err)
		}
	}
}
