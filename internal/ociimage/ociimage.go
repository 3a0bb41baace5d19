// Package ociimage makes container images as tars, without a registry, a
// container engine or a network. The same files give the same image, byte for
// byte: nothing in it says when, where or by whom it was made.
package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nameAnnotation is where containerd looks for an image's name.
const nameAnnotation = "io.containerd.image.name"

// Image is what an image is made of.
type Image struct {
	// Reference is its name with a tag, such as example.org/vmlet:v1.
	Reference string
	// Architecture is Go's name of it: amd64.
	Architecture string
	Config       v1.Config
	Layers       []v1.Layer
}

// Write writes an image as a tar and returns its digest. The tar is an OCI image
// layout that also has Docker's list of what is in it, so that every engine can
// import it. The file appears whole or not at all.
func Write(tarFile string, i Image) (digest string, err error) {
	tag, err := name.NewTag(i.Reference, name.WithDefaultTag(""))
	if err != nil {
		return "", fmt.Errorf("the image's name: %w", err)
	}
	if tag.TagStr() == "" {
		return "", fmt.Errorf("the image's name %s has no tag: want NAME:TAG", i.Reference)
	}
	image, err := build(i)
	if err != nil {
		return "", err
	}
	hash, err := image.Digest()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(tarFile), ".image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	folder := filepath.Join(dir, "layout")
	if err := writeLayout(folder, image, tag, i.Architecture); err != nil {
		return "", err
	}
	whole := filepath.Join(dir, "image.tar")
	if err := pack(folder, whole); err != nil {
		return "", err
	}
	return hash.String(), os.Rename(whole, tarFile)
}

func build(i Image) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: i.Architecture, Config: i.Config, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, i.Layers...)
}

func writeLayout(folder string, image v1.Image, tag name.Tag, arch string) error {
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = l.AppendImage(image, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}),
		layout.WithAnnotations(map[string]string{nameAnnotation: full(tag)}))
	if err != nil {
		return err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }
	docker := tarball.Descriptor{Config: blob(manifest.Config), RepoTags: []string{tag.String()}}
	for _, layer := range manifest.Layers {
		docker.Layers = append(docker.Layers, blob(layer))
	}
	list, err := json.Marshal(tarball.Manifest{docker})
	if err != nil {
		return err
	}
	return l.WriteFile("manifest.json", list, 0o644)
}

// full is a name as the runtimes of containers write it out: a short one with
// the registry that is meant by it, by its usual name.
func full(tag name.Tag) string {
	return strings.TrimPrefix(tag.Name(), "index.")
}

// pack makes a tar of a folder.
func pack(folder, tarFile string) (err error) {
	f, err := os.OpenFile(tarFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		header := tar.Header{Name: strings.TrimPrefix(path, folder+"/"), Mode: 0o644, Size: info.Size(), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(&header); err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// Entry is a file, folder or symbolic link in a layer; all belong to root.
type Entry struct {
	// Path has no slash at its beginning.
	Path string
	// Mode has the permissions, sticky bit and the kind: none, [fs.ModeDir] or
	// [fs.ModeSymlink].
	Mode fs.FileMode
	// ModTime has no part that is smaller than a second.
	ModTime time.Time
	// Content is a file's.
	Content []byte
	// Target is a link's.
	Target string
}

// Layer makes a layer of entries, in the order of their paths. Two entries of one
// path are an error. Folders that entries are in have to be entries themselves,
// unless their mode is of no interest.
func Layer(entries []Entry) (v1.Layer, error) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	var all bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&all, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	plain := sha256.New()
	w := tar.NewWriter(io.MultiWriter(compressed, plain))
	last := "." // which no layer has
	for _, e := range entries {
		if e.Path == last || !fs.ValidPath(e.Path) {
			return nil, fmt.Errorf("a layer can't have %q: want each path once, relative and clean", e.Path)
		}
		last = e.Path
		if err := e.write(w); err != nil {
			return nil, fmt.Errorf("a layer's %s: %w", e.Path, err)
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	packed := sha256.Sum256(all.Bytes())
	return partial.CompressedToLayer(layer{content: all.Bytes(), digest: hash(packed[:]), diffID: hash(plain.Sum(nil))})
}

// layer is what go-containerregistry is to know of one: told both sums it need not
// unpack the layer for them.
type layer struct {
	content        []byte
	digest, diffID v1.Hash
}

func (l layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l layer) DiffID() (v1.Hash, error)            { return l.diffID, nil }
func (l layer) Size() (int64, error)                { return int64(len(l.content)), nil }
func (l layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }
func (l layer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.content)), nil
}

func hash(sum []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)} }

func (e Entry) write(w *tar.Writer) error {
	mode := int64(e.Mode.Perm())
	if e.Mode&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	header := tar.Header{Name: e.Path, Mode: mode, ModTime: e.ModTime}
	switch e.Mode.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, e.Path+"/"
	case fs.ModeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.Target
	case 0:
		header.Typeflag, header.Size = tar.TypeReg, int64(len(e.Content))
	default:
		return fmt.Errorf("is neither a file nor a folder nor a symbolic link: %v", e.Mode)
	}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := w.Write(e.Content)
	return err
}
