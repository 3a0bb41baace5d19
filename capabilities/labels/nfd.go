package labels

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vmlet/vmlet/internal/atomicfile"
)

// maxNFD is the largest file that Node Feature Discovery reads, in bytes; a
// larger one it ignores as a whole (MaxFeatureFileSize in its source/local).
const maxNFD = 64 << 10

// FormatNFD writes labels as Node Feature Discovery's local source reads them:
// one "key=value" a line, sorted.
func FormatNFD(labels map[string]string) []byte {
	var b bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%s\n", key, labels[key])
	}
	return b.Bytes()
}

// ParseNFD reads what FormatNFD wrote. Comments and empty lines are skipped; a
// key alone means "true", as it does to NFD.
func ParseNFD(content []byte) map[string]string {
	labels := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, value, given := strings.Cut(line, "=")
		if !given {
			value = yes
		}
		labels[key] = value
	}
	return labels
}

// ReadNFD reads a file of WriteNFD. That there is none yet is an error which is
// fs.ErrNotExist; a file with anything else than labels, and one that is not a
// file itself but a link, are errors, too: they are not vmlet's to replace.
func ReadNFD(path string) (map[string]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link: name the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a file: name one in a folder of features", path), err)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxNFD+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxNFD {
		return nil, fmt.Errorf("%s has more than %d bytes, and was not written by vmlet: name another file", path, maxNFD)
	}
	labels := ParseNFD(content)
	for key, value := range labels {
		if !validKept(key, value) {
			return nil, fmt.Errorf("%s holds something other than labels (%.60q): it stays as it is; name another file", path, key)
		}
	}
	return labels, nil
}

// WriteNFD replaces a file of Node Feature Discovery's local source. The file
// is written beside it under a name with a dot, which NFD skips, and renamed, so
// that NFD reads the old labels or the new. No other file is touched, and the
// old one stays if anything fails. The folder must be there.
func WriteNFD(path string, labels map[string]string) error {
	dir, base := filepath.Split(path)
	content := FormatNFD(labels)
	switch {
	case base == "" || strings.HasPrefix(base, "."):
		return fmt.Errorf("%s: NFD reads no file of that name: one that doesn't begin with a dot is wanted", path)
	case len(content) > maxNFD:
		return fmt.Errorf("%s: the labels need %d bytes, and NFD ignores a file of more than %d: the old file stays", path, len(content), maxNFD)
	}
	// nfd-worker is another user.
	err := atomicfile.ReplaceDurably(path, content, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Clean(dir)
		return fmt.Errorf("%s: its folder is not there: make it (mkdir -p %s), or name the one that nfd-worker mounts: %w", path, dir, err)
	}
	return err
}
