package server

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// launcher is the room that VMMs are started in.
type launcher struct {
	*session
	source *source
	guests *guests
	ender  *ender
}

// launch is one try to start a VMM.
type launch struct {
	s        *launcher
	op       *operation
	driver   control.Driver
	received []*os.File
	leases   []shim.Lease
	progress func(shim.Progress)
	log      *slog.Logger
	vm       *vm

	// onThread is done on the thread that starts the VMM; nil: nothing is.
	onThread func() error

	meanwhile undo.Stack // of the launch alone, whether or not it fails
	opener    *opener
	output    io.Writer // of the VMM and its companions; nil: not opened yet
	stdin     *os.File  // of a VMM with a terminal
	stdout    *os.File
	image     *memory.Image
	placed    dedicated.Placement
	filling   *filling      // nil: RAM isn't filled from here
	lazyImage *memory.Image // nil: RAM isn't mapped from it
	verifying context.Context
}
