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
func (l oneWord) Start(name string, end *os.File) error {
	if name == "broken" {
		return errors.New("it has no libraries")
	}
	_, err := io.WriteString(end, "driver "+name)
	return err
}

// TestDrivers: an agent gets the names of the drivers in the pod's image, and a connection to those alone.
func TestDrivers(t *testing.T) {
	s := newScene(t, func(o *Options) {
		o.Pod = &Pod{Drivers: oneWord{"broken", "microvm"}, Probe: func(context.Context) (json.RawMessage, error) { return json.RawMessage("[]"), nil }}
	})
	d, err := s.client.Describe(s.ctx, shim.Describe{})
	if s.check(err); !slices.Equal(d.Drivers, []string{"broken", "microvm"}) {
		t.Errorf("drivers are %v", d.Drivers)
	}
	d.Done()
	near, end, err := unixsocket.Pair("driver")
	s.check(err)
	defer near.Close()
	s.check(s.client.Driver(s.ctx, "microvm", end))
	wantCode(t, s.client.Driver(s.ctx, "other", end), shim.CodeInvalid)
	if err := s.client.Driver(s.ctx, "broken", end); err == nil {
		t.Error("a driver that can't be started is there")
	}
	end.Close() // nobody else has it any more
	if said, err := io.ReadAll(near); string(said) != "driver microvm" || err != nil {
		t.Errorf("it says %q, %v", said, err)
	}
}

// TestNoDrivers: a shim that is in no pod has none.
func TestNoDrivers(t *testing.T) {
	s := newScene(t, nil)
	near, end, err := unixsocket.Pair("driver")
	s.check(err)
	defer near.Close()
	defer end.Close()
	wantCode(t, s.client.Driver(s.ctx, "microvm", end), shim.CodePrecondition)
}
