// Command mkguest writes the guests that vmlet's demo boots to a folder.
//
//	go run ./test/guest/mkguest DIR
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/test/guest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mkguest DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mkguest:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	pvh, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pvh.elf"), pvh, 0o644)
}
