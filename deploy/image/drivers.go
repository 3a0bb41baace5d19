package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/vmlet/vmlet/internal/ociimage"
)

// driversDir is where vmlet-shim looks for drivers, each named after its VMM (contract.DriversFolder).
const driversDir = "usr/libexec/vmlet/drivers"

// driverEntries are drivers of VMMs that vmlet doesn't know: static programs, which keep their names.
func driverEntries(files []string) ([]ociimage.Entry, error) {
	var entries []ociimage.Entry
	for _, dir := range []string{"usr/libexec", "usr/libexec/vmlet", driversDir} {
		entries = append(entries, ociimage.Entry{Path: dir, Mode: fs.ModeDir | 0o755})
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("driver: %w", err)
		}
		entries = append(entries, ociimage.Entry{Path: path.Join(driversDir, filepath.Base(file)), Mode: 0o755, Content: content})
	}
	return entries, nil
}
