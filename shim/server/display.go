package server

import (
	"context"
	"errors"
	"os"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/display"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// beginDisplay hands a client the display.
func (s *guests) beginDisplay(args *shim.Display) (work, error) {
	s.mu.Lock()
	v, err := s.running()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	machine, can := v.machine().(control.Displayer)
	if !can {
		return nil, fault.Precondition("a %s shows no display", v.plan.VMM)
	}
	return func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		f, err := v.display.Attach(args.Keep, func(client *os.File) error { return machine.AddDisplay(ctx, client) })
		if errors.Is(err, display.ErrInUse) {
			return nil, fault.New(shim.CodeBusy, "", "%v: it is to be kept", err)
		}
		if err != nil {
			return nil, err
		}
		return f, nil
	}, nil
}

// beginConsole hands a client the console.
func (s *guests) beginConsole(args *shim.Console) (work, error) {
	s.mu.Lock()
	v, err := s.running()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return func() (any, error) {
		f, err := v.console.Attach(args.Backlog)
		if err != nil {
			return nil, fault.Precondition("%v", err)
		}
		return f, nil
	}, nil
}
