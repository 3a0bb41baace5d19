package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vmlet/vmlet/internal/interrupted"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
)

// SystemShims are shims that run as processes of this machine.
type SystemShims struct{}

// Start starts a shim and returns its pid; see shim.Start.
func (SystemShims) Start(ctx context.Context, o shim.StartOptions) (Shim, int, error) {
	client, pid, err := shim.Start(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	return client, pid, nil
}

// Dial connects to the shim of a run directory.
func (SystemShims) Dial(ctx context.Context, runDir string) (Shim, error) {
	client, err := shim.Dial(ctx, runDir)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// DialSocket connects to a socket of a run directory by its name.
func (SystemShims) DialSocket(ctx context.Context, runDir, name string) (net.Conn, error) {
	conn, err := shim.DialSocket(ctx, runDir, name)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Process opens the process of the shim that a run directory names.
func (SystemShims) Process(runDir string) (ShimProcess, error) {
	p, err := shim.ReadShimProcess(runDir)
	if err != nil {
		return nil, err
	}
	return ProcessOf(*p)
}

// ProcessOf opens a process that is still there.
func ProcessOf(p shim.ShimProcess) (ShimProcess, error) {
	pidfd, err := shim.OpenProcess(p)
	if err != nil {
		return nil, err
	}
	return &systemProcess{p, pidfd}, nil
}

// systemProcess is a process by its pidfd (pidfd_open(2)).
type systemProcess struct {
	id    shim.ShimProcess
	pidfd *os.File
}

func (p *systemProcess) PID() int     { return p.id.PID }
func (p *systemProcess) Close() error { return p.pidfd.Close() }

// Alive asks the pidfd, which always answers, unlike what is in /proc.
func (p *systemProcess) Alive() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd.Fd()), Events: unix.POLLIN}}
	_, err := interrupted.RetryInt(func() (int, error) { return unix.Poll(fds, 0) })
	return err != nil || fds[0].Revents == 0
}

// Kill of one that has ended is no error.
func (p *systemProcess) Kill() error {
	err := unix.PidfdSendSignal(int(p.pidfd.Fd()), unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", p.id.PID, err)
	}
	return nil
}

// Wait polls the pidfd, which becomes readable when the process ends. A pipe
// wakes the poll when ctx ends.
func (p *systemProcess) Wait(ctx context.Context) error {
	wake, waker, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wake.Close()
	defer waker.Close()
	stop := context.AfterFunc(ctx, func() { waker.Write([]byte{0}) })
	defer stop()
	fds := []unix.PollFd{
		{Fd: int32(p.pidfd.Fd()), Events: unix.POLLIN},
		{Fd: int32(wake.Fd()), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("waiting for process %d: %w", p.id.PID, err)
		case fds[0].Revents != 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("process %d has not ended yet: %w", p.id.PID, context.Cause(ctx))
		}
	}
}

// RunningShim returns a shim's process, or nil if there is none. On an error it is unknown
// whether one is running.
func RunningShim(p ShimProcess, err error) (ShimProcess, error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
		return nil, nil
	}
	return p, err
}

// WaitForShim returns when no shim runs at a place.
func WaitForShim(ctx context.Context, at interface{ Process() (ShimProcess, error) }) error {
	process, err := RunningShim(at.Process())
	if process == nil {
		return err
	}
	defer process.Close()
	return process.Wait(ctx)
}
