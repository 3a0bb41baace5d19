package server

import (
	"context"
	"sync"
)

const (
	opLaunch = "launch"
	opResume = "resume"
	opSave   = "save"
	opAttach = "attachment"
	opDetach = "detachment"
	opRenew  = "renewal"
)

// operation is a launch, a save, a commit or an abort: there is one at a time.
type operation struct {
	name   string
	owner  *conn // whose end cancels it; nil: nobody's
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	ending sync.Mutex
	sealed bool // nobody ends it any more
}

// end has the operation end early, unless it is sealed.
func (o *operation) end(why error) {
	o.ending.Lock()
	defer o.ending.Unlock()
	if !o.sealed {
		o.cancel(why)
	}
}

// seal has the operation come to its own end from here on. The error is why it is to end.
func (o *operation) seal() error {
	o.ending.Lock()
	defer o.ending.Unlock()
	if err := context.Cause(o.ctx); err != nil {
		return err
	}
	o.sealed = true
	return nil
}
