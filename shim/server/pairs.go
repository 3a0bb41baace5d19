package server

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// pairs are the other ends of sockets of which one process of a plan has one.
type pairs struct{ open map[string]*os.File }

// take returns an end of the pair with a name: the second caller has what the first has not.
func (p *pairs) take(name string) (*os.File, error) {
	if name == "" {
		return nil, errors.New("a pair of sockets has no name")
	}
	if other, made := p.open[name]; made {
		if other == nil {
			return nil, fmt.Errorf("the plan has more than two ends of the pair of sockets %q", name)
		}
		p.open[name] = nil
		return other, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	if p.open == nil {
		p.open = make(map[string]*os.File)
	}
	p.open[name] = os.NewFile(uintptr(fds[1]), name)
	return os.NewFile(uintptr(fds[0]), name), nil
}

// complete refuses a plan that has one end of a pair only.
func (p *pairs) complete() error {
	for _, name := range slices.Sorted(maps.Keys(p.open)) {
		if p.open[name] != nil {
			return fmt.Errorf("the plan has one end only of the pair of sockets %q", name)
		}
	}
	return nil
}

// close closes the ends that nobody has taken.
func (p *pairs) close() error {
	for _, f := range p.open {
		if f != nil {
			f.Close()
		}
	}
	p.open = nil
	return nil
}
