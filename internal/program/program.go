// Package program has what the main functions of vmlet's programs have in common. Each
// main has its own `version`, as the linker sets variables by package.
package program

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
)

// Version returns the version that the linker set, or what the Go build
// recorded: a module version, or a revision.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	rev := setting["vcs.revision"]
	if rev == "" {
		return "devel"
	}
	v := fmt.Sprintf("devel-%.12s", rev)
	if setting["vcs.modified"] == "true" {
		v += "-dirty"
	}
	return v
}

// EndSignals returns the signals that end a program, but for those that the one who started
// it wants ignored: nohup(1) does so.
func EndSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	return slices.DeleteFunc(signals, signal.Ignored)
}
