// Command mkguest writes the guests that vmlet's demo boots to a folder:
// Debian's kernel (vmlinuz) with an initramfs that counts (initrd), and the
// tiny PVH guest (pvh.elf).
//
//	go run ./test/guest/mkguest DIR
package main

import (
	"context"
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
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mkguest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	kernel, initrd, err := guest.Linux(ctx)
	if err != nil {
		return err
	}
	pvh, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, from := range map[string]string{"vmlinuz": kernel, "initrd": initrd} {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "pvh.elf"), pvh, 0o644)
}
