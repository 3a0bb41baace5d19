package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// loadModules loads the kernel modules in a folder, in the order of its file
// "order". One that finds no device is no fault.
func loadModules(out *console, dir string) {
	order, err := os.ReadFile(dir + "/order")
	if err != nil {
		out.printf("error: no kernel modules: %v", err)
		return
	}
	for _, name := range strings.Fields(string(order)) {
		if err := loadModule(dir + "/" + name); err != nil {
			out.printf("error: %v", err)
		}
	}
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("loading %s: %w", path, err)
	}
	return nil
}
