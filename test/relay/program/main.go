// Command program is a QEMU that misbehaves when it is told to, see the package relay.
package main

import (
	"fmt"
	"os"

	"github.com/vmlet/vmlet/test/relay"
)

func main() {
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(relay.Main(program, os.Args[1:]))
}
