package server

import "github.com/vmlet/vmlet/shim/server/fault"

// beginResume lets a guest run that has not since its restore or a save, if its disks
// are as they were. One that has run is left alone.
func (s *saves) beginResume(c *conn) (work, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.running()
	switch {
	case err != nil:
		return nil, err
	case s.prepared != nil:
		return nil, fault.Precondition("a save into %s is under way", s.prepared.directory)
	}
	op, err := s.begin(opResume, c)
	if err != nil {
		return nil, err
	}
	return func() (any, error) {
		var err error
		if len(s.heldDisks(v)) > 0 {
			err = v.proc().explain(op.ctx, s.proceed(op.ctx, v))
		}
		s.finish(op, func() {})
		return nil, err
	}, nil
}
