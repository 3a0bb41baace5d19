// Package fingerprint tells a file from a later one of the same name, without
// reading it.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// maxInside bounds how many names of a folder are looked at.
const maxInside = 4096

// Of is a text that is another one once the file behind a path is replaced,
// written, touched or gone; links are followed. Of a folder also the files in it
// count whose names fit the pattern inside, as path.Match takes it; empty: none.
// Of a device counts only what it is and whose: its dates change with every use
// and its mode with every VM that is given access.
func Of(name, inside string) string {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "?" + err.Error()
	}
	text := state(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || inside == "" {
		return text
	}
	for _, f := range names(name) {
		if fits, err := path.Match(inside, f); err == nil && fits && unix.Stat(filepath.Join(name, f), &st) == nil {
			text += fmt.Sprintf("; %q %s", f, state(&st))
		}
	}
	return text
}

// All is Of of many files, in a text of fixed length.
func All(names []string) string {
	sum := sha256.New()
	for _, name := range names {
		fmt.Fprintf(sum, "%q %s\n", name, Of(name, ""))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// headBytes is how much Content reads of a file: linkers put a program's build id there, and most
// descriptors have less.
const headBytes = 4 << 10

// Content is the same text for the same files in two file systems, such as two containers of one image:
// as far as their kind, mode, size, time of change and first headBytes tell. Links are followed. The files in a
// folder count as well, without their own folders'. A file that is not there counts as missing.
func Content(paths []string) (string, error) {
	sum := sha256.New()
	for _, name := range paths {
		inside, err := addContent(sum, name)
		for _, f := range inside {
			if err == nil {
				_, err = addContent(sum, filepath.Join(name, f))
			}
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// addContent returns the names in a folder.
func addContent(sum io.Writer, name string) (inside []string, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe's other end is not waited for
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(sum, "%q missing\n", name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		fmt.Fprintf(sum, "%q %v\n", name, mode)
		return names(name), nil
	case !mode.IsRegular():
		fmt.Fprintf(sum, "%q %v\n", name, mode)
		return nil, nil
	}
	head := make([]byte, headBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	fmt.Fprintf(sum, "%q %v size %d changed %d begins %x\n", name, info.Mode(), info.Size(), info.ModTime().UnixNano(), head[:n])
	return nil, nil
}

func state(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		return fmt.Sprintf("kind %o device %d owner %d:%d", st.Mode&unix.S_IFMT, st.Rdev, st.Uid, st.Gid)
	}
	return fmt.Sprintf("mode %o file %d:%d size %d changed %d.%d", st.Mode, st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}

// names are the first of a folder, sorted.
func names(folder string) []string {
	d, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer d.Close()
	found, err := d.Readdirnames(maxInside)
	if err != nil && err != io.EOF {
		return nil
	}
	slices.Sort(found)
	return found
}
