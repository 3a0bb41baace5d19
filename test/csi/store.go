package csi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// store keeps volumes and snapshots, each in a folder that is there whole or not at all.
type store struct{ root string }

// item is what is kept of a volume or a snapshot beside its content.
type item struct {
	// Name is what it was asked for by.
	Name string `json:"name"`
	// Size is that of a snapshot's content, in bytes; a volume's is its file's.
	Size int64 `json:"size"`
	// From is the ID of the volume or snapshot that it is a copy of; empty: of none.
	From string    `json:"from"`
	Made time.Time `json:"made"`
}

// The first letters of IDs.
const (
	volumes   = "v-"
	snapshots = "s-"
)

var wellFormed = regexp.MustCompile(`^[vs]-[0-9a-f]{32}$`)

// identify is the ID of what has that name: once more is the same.
func identify(kind, name string) string {
	return fmt.Sprintf("%s%.16x", kind, sha256.Sum256([]byte(name)))
}

func openStore(root string) (store, error) {
	s := store{root}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return s, err
	}
	unfinished, err := filepath.Glob(filepath.Join(root, "new-*"))
	if nodes, _ := s.nodes(); len(nodes) > 0 {
		return s, err // it may be another node's that is at it
	}
	for _, dir := range unfinished {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return s, err
}

// content is the file that has it.
func (s store) content(id string) string { return filepath.Join(s.root, id, "content") }

// get is nil if there is none of that ID.
func (s store) get(id string) (*item, error) {
	if !wellFormed.MatchString(id) {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(s.root, id, "about.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := new(item)
	if err := json.Unmarshal(text, i); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	file, err := os.Stat(s.content(id))
	if err != nil {
		return nil, err
	}
	i.Size = file.Size()
	return i, nil
}

// add makes one of i.Size bytes, with the content of i.From at its beginning.
func (s store) add(ctx context.Context, id string, i item) error {
	work, err := os.MkdirTemp(s.root, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	content := filepath.Join(work, "content")
	if i.From != "" {
		// A copy that shares its blocks where the file system can.
		if err := run(ctx, "cp", "--reflink=auto", "--sparse=always", s.content(i.From), content); err != nil {
			return err
		}
	} else if err := os.WriteFile(content, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(content, i.Size); err != nil {
		return err
	}
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "about.json"), text, 0o600); err != nil {
		return err
	}
	return os.Rename(work, filepath.Join(s.root, id))
}

// remove removes what may not be there.
func (s store) remove(id string) error {
	if !wellFormed.MatchString(id) {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.root, id))
}

// run runs a program, whose error has what it complained of.
func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %.500s", name, args, err, out)
	}
	return nil
}

// nodeFile comes before the name of a node that has a driver over the store, attachedTo before that of
// one that a volume is attached to.
const (
	nodeFile   = "node-"
	attachedTo = "attached-to-"
)

func (s store) nodes() ([]string, error) { return names(filepath.Join(s.root, nodeFile)) }

func (s store) addNode(name string) error {
	return os.WriteFile(filepath.Join(s.root, nodeFile+name), nil, 0o600)
}

// names are what files' names have after a beginning.
func names(beginning string) ([]string, error) {
	files, err := filepath.Glob(beginning + "*")
	for i, file := range files {
		files[i] = strings.TrimPrefix(file, beginning)
	}
	return files, err
}

// attached are the nodes that a volume is attached to: files of their names, beside the content.
func (s store) attached(id string) ([]string, error) {
	if !wellFormed.MatchString(id) {
		return nil, nil
	}
	return names(filepath.Join(s.root, id, attachedTo))
}

func (s store) attach(id, node string) error {
	return os.WriteFile(filepath.Join(s.root, id, attachedTo+node), nil, 0o600)
}

// detach takes away what may not be there.
func (s store) detach(id, node string) error {
	if !wellFormed.MatchString(id) {
		return nil
	}
	err := os.Remove(filepath.Join(s.root, id, attachedTo+node))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
