// Package untree removes folders that somebody else has filled, who isn't trusted.
package untree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// batch is how many entries of a folder are looked at together.
const batch = 256

// RemoveAll removes what has this name in a folder, with all that is in it; that
// there is nothing is no error. Unlike os.RemoveAll it takes no more memory and
// descriptors for folders in each other than for one: it moves each to the top before
// it looks in. Nothing outside is touched, whatever becomes of the tree meanwhile; who
// goes on filling it is given up on when the context ends.
func RemoveAll(ctx context.Context, parent *os.Root, name string) error {
	err := remove(parent, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	top, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	defer top.Close()
	r := remover{ctx, top, rand.Text(), 0}
	for {
		if err := r.each(".", func(entry string) error { return r.flatten(entry) }); err != nil {
			return fmt.Errorf("remove %s: %w", path.Join(parent.Name(), name), err)
		}
		if err := remove(parent, name); !errors.Is(err, unix.ENOTEMPTY) || ctx.Err() != nil {
			return err
		}
	}
}

// remover empties one folder.
type remover struct {
	ctx context.Context
	top *os.Root
	// prefix and n make names that nobody has guessed.
	prefix string
	n      int
}

// each calls do with what is in a folder, until nothing is.
func (r *remover) each(dir string, do func(path string) error) error {
	for {
		// Again each time: what has been removed may have hidden the rest.
		names, err := r.list(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if r.ctx.Err() != nil {
				return fmt.Errorf("it is not empty yet: %w", context.Cause(r.ctx))
			}
			if err := do(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
}

func (r *remover) list(dir string) ([]string, error) {
	f, err := r.top.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(batch)
	if err == io.EOF {
		err = nil
	}
	return names, err
}

// flatten removes an entry of the top, for which it moves the folders in it there.
func (r *remover) flatten(entry string) error {
	for {
		err := remove(r.top, entry)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		if err := r.each(entry, r.raise); err != nil {
			return err
		}
	}
}

// raise removes an entry, or moves it to the top.
func (r *remover) raise(entry string) error {
	err := remove(r.top, entry)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	r.n++
	err = r.top.Rename(entry, fmt.Sprintf("%s-%d", r.prefix, r.n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// remove removes a file or an empty folder.
func remove(root *os.Root, name string) error {
	err := root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
