package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/shim"
)

// oneWord are drivers that say one word.
type oneWord []string

func (l oneWord) Names() []string { return l }
func (l oneWord) Start(name string) (*os.File, error) {
	if name == "broken" {
		return nil, errors.New("it has no libraries")
	}
	near, far, err := unixsocket.Pair(name)
	if err != nil {
		return nil, err
	}
	defer near.Close()
	_, err = io.WriteString(near, "driver "+name)
	return far, err
}

// TestDrivers: an agent is told of the drivers in the pod's image, and connected to those alone.
func TestDrivers(t *testing.T) {
	s := newScene(t, func(o *Options) {
		o.Pod = &Pod{Drivers: oneWord{"broken", "microvm"}, Probe: func(context.Context) (json.RawMessage, error) { return json.RawMessage("[]"), nil }}
	})
	d, err := s.client.Describe(s.ctx, shim.Describe{})
	if s.check(err); !slices.Equal(d.Drivers, []string{"broken", "microvm"}) {
		t.Errorf("drivers are %v", d.Drivers)
	}
	d.Done()
	conn, err := s.client.Driver(s.ctx, "microvm")
	s.check(err)
	defer conn.Close()
	if said, err := io.ReadAll(conn); string(said) != "driver microvm" || err != nil {
		t.Errorf("it says %q, %v", said, err)
	}
	_, err = s.client.Driver(s.ctx, "other")
	wantCode(t, err, shim.CodeInvalid)
	if _, err = s.client.Driver(s.ctx, "broken"); err == nil {
		t.Error("a driver that can't be started is there")
	}
}

// TestNoDrivers: a shim that is in no pod has none.
func TestNoDrivers(t *testing.T) {
	s := newScene(t, nil)
	_, err := s.client.Driver(s.ctx, "microvm")
	wantCode(t, err, shim.CodePrecondition)
}
