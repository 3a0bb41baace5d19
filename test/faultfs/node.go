package faultfs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file or a folder; what it does not do here it does as the folder below.
type node struct {
	*fs.LoopbackNode
	fsys *FS
}

// WrapChild makes nodes of all that the loopback makes.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	if child, ok := ops.(*fs.LoopbackNode); ok {
		return &node{child, n.fsys}
	}
	return ops
}

// name is its last name, for the script.
func (n *node) name() string {
	name, _ := n.Parent()
	return name
}

func (n *node) id() uint64 { return n.StableAttr().Ino }

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	errno = n.fsys.try(ctx, OpLookup, name, func(Fault) (errno syscall.Errno) {
		child, errno = n.LoopbackNode.Lookup(ctx, name, out)
		return errno
	})
	return child, errno
}

func (n *node) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return n.fsys.try(ctx, OpGetattr, n.name(), func(Fault) syscall.Errno {
		if h, ok := f.(*handle); ok {
			return h.Getattr(ctx, out)
		}
		return n.LoopbackNode.Getattr(ctx, nil, out)
	})
}

func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	return n.fsys.try(ctx, OpStatfs, n.name(), func(Fault) syscall.Errno { return n.LoopbackNode.Statfs(ctx, out) })
}

func (n *node) Open(ctx context.Context, flags uint32) (h fs.FileHandle, _ uint32, errno syscall.Errno) {
	// Direct I/O is between the caller and this filesystem; the folder below may not have it.
	flags &^= syscall.O_DIRECT
	errno = n.fsys.try(ctx, OpOpen, n.name(), func(Fault) syscall.Errno {
		f, _, errno := n.LoopbackNode.Open(ctx, flags)
		if errno != 0 {
			return errno
		}
		h = &handle{f.(*fs.LoopbackFile), n}
		if flags&syscall.O_TRUNC != 0 {
			n.fsys.journal.add(entry{kind: kindTruncate, id: n.id()})
		}
		return 0
	})
	return h, 0, errno
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (h fs.FileHandle, _ uint32, errno syscall.Errno) {
	errno = n.fsys.try(ctx, OpOpendir, n.name(), func(Fault) syscall.Errno {
		ds, _, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
		if errno != 0 {
			return errno
		}
		stream, ok := ds.(dirStream)
		if !ok {
			return syscall.ENOSYS
		}
		h = &dirHandle{stream, n}
		return 0
	})
	return h, 0, errno
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (child *fs.Inode, h fs.FileHandle, _ uint32, errno syscall.Errno) {
	flags &^= syscall.O_DIRECT
	errno = n.fsys.change(ctx, OpCreate, name, func() (entry, syscall.Errno) {
		c, f, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
		if errno != 0 {
			return entry{}, errno
		}
		child = c
		h = &handle{f.(*fs.LoopbackFile), c.Operations().(*node)}
		return entry{kind: kindPut, dir: n.id(), name: name, id: c.StableAttr().Ino, mode: mode&0o7777 | syscall.S_IFREG}, 0
	})
	if errno != 0 && h != nil {
		h.(*handle).Release(ctx)
		h = nil
	}
	return child, h, 0, errno
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	errno = n.fsys.change(ctx, OpMkdir, name, func() (entry, syscall.Errno) {
		c, errno := n.LoopbackNode.Mkdir(ctx, name, mode, out)
		if errno != 0 {
			return entry{}, errno
		}
		child = c
		return entry{kind: kindPut, dir: n.id(), name: name, id: c.StableAttr().Ino, mode: mode&0o7777 | syscall.S_IFDIR}, 0
	})
	return child, errno
}

func (n *node) Readlink(ctx context.Context) (target []byte, errno syscall.Errno) {
	errno = n.fsys.try(ctx, OpReadlink, n.name(), func(Fault) (errno syscall.Errno) {
		target, errno = n.LoopbackNode.Readlink(ctx)
		return errno
	})
	return target, errno
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	return n.fsys.change(ctx, OpUnlink, name, func() (entry, syscall.Errno) {
		return entry{kind: kindDrop, dir: n.id(), name: name}, n.LoopbackNode.Unlink(ctx, name)
	})
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	return n.fsys.change(ctx, OpRmdir, name, func() (entry, syscall.Errno) {
		return entry{kind: kindDrop, dir: n.id(), name: name}, n.LoopbackNode.Rmdir(ctx, name)
	})
}

func (n *node) Rename(ctx context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to, ok := newParent.(*node)
	if !ok {
		return syscall.EXDEV
	}
	if flags != 0 && n.fsys.journal.on() {
		return syscall.EINVAL // an exchange, say: States does not know it
	}
	return n.fsys.change(ctx, OpRename, newName, func() (entry, syscall.Errno) {
		return entry{kind: kindMove, dir: n.id(), name: name, toDir: to.id(), toName: newName},
			n.LoopbackNode.Rename(ctx, name, to.LoopbackNode, newName, flags)
	})
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (child *fs.Inode, errno syscall.Errno) {
	from, ok := target.(*node)
	if !ok {
		return nil, syscall.EXDEV
	}
	if n.fsys.journal.on() {
		return nil, syscall.EPERM // States does not know it; FAT has none, either
	}
	errno = n.fsys.change(ctx, OpLink, name, func() (entry, syscall.Errno) {
		c, errno := n.LoopbackNode.Link(ctx, from.LoopbackNode, name, out)
		child = c
		return entry{}, errno
	})
	return child, errno
}

// Tmpfile is not had, as on many filesystems.
func (n *node) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EOPNOTSUPP
}

// CopyFileRange is not had: what copies goes through read and write.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.EOPNOTSUPP
}

func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	op, e := OpSetattr, entry{id: n.id()}
	if mode, ok := in.GetMode(); ok {
		e.kind, e.mode = kindMode, mode
	}
	if size, ok := in.GetSize(); ok {
		op, e.kind, e.off = OpTruncate, kindTruncate, int64(size)
	}
	return n.fsys.change(ctx, op, n.name(), func() (entry, syscall.Errno) {
		if h, ok := f.(*handle); ok {
			return e, n.LoopbackNode.Setattr(ctx, h.LoopbackFile, in, out)
		}
		return e, n.LoopbackNode.Setattr(ctx, nil, in, out)
	})
}

func (n *node) Setxattr(ctx context.Context, attr string, data []byte, flags uint32) syscall.Errno {
	return n.fsys.try(ctx, OpSetxattr, n.name(), func(Fault) syscall.Errno {
		return n.LoopbackNode.Setxattr(ctx, attr, data, flags)
	})
}
