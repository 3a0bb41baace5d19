package faultfs

import (
	"bytes"
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file.
type handle struct {
	*fs.LoopbackFile
	node *node
}

// PassthroughFd keeps the kernel from passing this filesystem by.
func (h *handle) PassthroughFd() (int, bool) { return 0, false }

func (h *handle) Read(ctx context.Context, b []byte, off int64) (r fuse.ReadResult, errno syscall.Errno) {
	errno = h.node.fsys.tryAt(ctx, OpRead, h.node.name(), extent{off, len(b)}, func(fault Fault) syscall.Errno {
		if fault.Short {
			b = b[:len(b)/2]
		}
		res, errno := h.LoopbackFile.Read(ctx, b, off)
		if errno != 0 {
			return errno
		}
		got, status := res.Bytes(b)
		res.Done()
		if fault.Flip && len(got) > 0 {
			got[len(got)/2] ^= 0x10
		}
		r = fuse.ReadResultData(got)
		return syscall.Errno(status)
	})
	return r, errno
}

func (h *handle) Write(ctx context.Context, b []byte, off int64) (n uint32, errno syscall.Errno) {
	fsys := h.node.fsys
	errno = fsys.tryAt(ctx, OpWrite, h.node.name(), extent{off, len(b)}, func(fault Fault) (errno syscall.Errno) {
		if fault.Short {
			b = b[:max(len(b)/2, 1)]
		}
		return fsys.journal.during(func() (entry, syscall.Errno) {
			n, errno = h.LoopbackFile.Write(ctx, b, off)
			return entry{kind: kindWrite, id: h.node.id(), off: off, data: bytes.Clone(b[:n])}, errno
		})
	})
	return n, errno
}

func (h *handle) Lseek(ctx context.Context, off uint64, whence uint32) (at uint64, errno syscall.Errno) {
	errno = h.node.fsys.try(ctx, OpLseek, h.node.name(), func(Fault) (errno syscall.Errno) {
		at, errno = h.LoopbackFile.Lseek(ctx, off, whence)
		return errno
	})
	return at, errno
}

func (h *handle) Flush(ctx context.Context) syscall.Errno {
	return h.node.fsys.try(ctx, OpFlush, h.node.name(), func(Fault) syscall.Errno { return 0 })
}

// Fsync does not wait for the disk below: nothing here is to outlive the test.
func (h *handle) Fsync(ctx context.Context, _ uint32) syscall.Errno {
	return h.node.fsys.change(ctx, OpFsync, h.node.name(), func() (entry, syscall.Errno) {
		return entry{kind: kindSync, id: h.node.id()}, 0
	})
}

func (h *handle) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	e := entry{kind: kindExtend, id: h.node.id(), off: int64(off + size)}
	switch {
	case mode == unix.FALLOC_FL_KEEP_SIZE:
		e = entry{}
	case mode != 0 && h.node.fsys.journal.on():
		return syscall.EOPNOTSUPP // a hole punched, say: States does not know it
	}
	return h.node.fsys.change(ctx, OpAllocate, h.node.name(), func() (entry, syscall.Errno) {
		return e, h.LoopbackFile.Allocate(ctx, off, size, mode)
	})
}

// dirStream is what the loopback has for an open folder.
type dirStream interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// dirHandle is an open folder.
type dirHandle struct {
	dirStream
	node *node
}

func (h *dirHandle) Readdirent(ctx context.Context) (e *fuse.DirEntry, errno syscall.Errno) {
	errno = h.node.fsys.try(ctx, OpReaddir, h.node.name(), func(Fault) (errno syscall.Errno) {
		e, errno = h.dirStream.Readdirent(ctx)
		return errno
	})
	return e, errno
}

// Fsyncdir, see Fsync.
func (h *dirHandle) Fsyncdir(ctx context.Context, _ uint32) syscall.Errno {
	return h.node.fsys.change(ctx, OpFsyncdir, h.node.name(), func() (entry, syscall.Errno) {
		return entry{kind: kindSyncDir, id: h.node.id()}, 0
	})
}
