package nodes_test

import (
	"crypto/tls"
	"testing"

	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestConnections: who uses a connection keeps it though the agent is elsewhere by now, and the
// next one comes to where it is. An agent of another node's name is not talked to.
func TestConnections(t *testing.T) {
	authority, err := nodestest.NewAuthority()
	must(t, err)
	serve := func(node string) (*nodestest.Guests, nodes.Endpoint) {
		t.Helper()
		var config *tls.Config
		config, err = authority.Server(node)
		must(t, err)
		guests := &nodestest.Guests{}
		address, stop, err := guests.Serve("127.0.0.1:0", config)
		must(t, err)
		t.Cleanup(stop)
		return guests, nodes.Endpoint{Address: address}
	}
	config, err := authority.Client()
	must(t, err)
	all := nodes.NewConnections(config)
	pause := func(c nodev1.NodeServiceClient) error {
		_, err := c.PauseVM(t.Context(), &nodev1.PauseVMRequest{Name: "x"})
		return err
	}
	first, at := serve("one")
	second, elsewhere := serve("one")
	before, leave, err := all.Client("one", at, "uid")
	must(t, err)
	must(t, pause(before))
	after, leaveAfter, err := all.Client("one", elsewhere, "uid")
	must(t, err)
	must(t, pause(after))
	must(t, pause(before)) // it is used still
	if a, b := len(first.Calls()), len(second.Calls()); a != 2 || b != 1 {
		t.Errorf("the agents were called %d and %d times, want 2 and 1", a, b)
	}
	leave()
	leave() // twice is as good
	if err := pause(before); status.Code(err) != codes.Canceled {
		t.Errorf("after its last user has left: %v, want that it is closed", err)
	}
	leaveAfter()
	must(t, pause(after)) // kept for the next one
	other, leaveOther, err := all.Client("two", at, "uid")
	must(t, err)
	defer leaveOther()
	if err := pause(other); status.Code(err) != codes.Unavailable {
		t.Errorf("an agent of another node: %v, want Unavailable", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
