// Command standin is a program to put in cloud-hypervisor's place, see package
// chtest.
package main

import (
	"fmt"
	"os"

	"github.com/vmlet/vmlet/test/chtest"
)

func main() {
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(chtest.Main(os.Args[1:], program, os.Getenv(chtest.Variable), os.Stdout, os.Stderr))
}
