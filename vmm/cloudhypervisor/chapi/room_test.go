package chapi_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// TestRoom: a large reply is read when there is room for it, which is free again when it
// was decoded, or could not be; a small one needs none.
func TestRoom(t *testing.T) {
	const size, room = 64 << 10, 4 * (64 << 10)
	sums := semaphore.NewWeighted(room)
	head := func(n int) string { return fmt.Sprintf("HTTP/1.1 200\r\nContent-Length: %d\r\n\r\n", n) }
	large := `{"state":"` + strings.Repeat("x", size-12) + `"}`
	replies := make(chan string, 1)
	client := listen(t, func(conn *net.UnixConn) {
		if _, err := receive(conn); err == nil {
			_, _ = conn.Write([]byte(<-replies))
		}
	}, chapi.WithRoom(sums))
	ask := func(reply string) error {
		replies <- reply
		_, err := client.Info(testContext(t))
		return err
	}
	free := func(what string) {
		t.Helper()
		if !sums.TryAcquire(room) {
			t.Fatalf("after %s room is still taken", what)
		}
		sums.Release(room)
	}
	if err := ask(head(size) + large); err != nil {
		t.Error(err)
	}
	free("a reply")
	for what, reply := range map[string]string{"no JSON": head(size) + strings.Repeat("x", size), "half a reply": head(size) + large[:size/2], "no more than its head": head(size)} {
		if err := ask(reply); err == nil {
			t.Errorf("%s is taken", what)
		}
		free(what)
	}
	if !sums.TryAcquire(room) { // by another client
		t.Fatal("no room")
	}
	if err := ask(head(2) + "{}"); err != nil {
		t.Errorf("a small reply: %v", err)
	}
	replies <- head(size) + large
	answered := make(chan error, 1)
	go func() {
		_, err := client.Info(testContext(t))
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("it was read while there was no room: %v", err)
	default:
	}
	sums.Release(room)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
