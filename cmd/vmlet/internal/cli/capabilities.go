package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/internal/program"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
)

// gcPercent makes the first collection of garbage be at 16 MiB instead of 4.
const gcPercent = 400

// capabilitiesFlags are those of commands that read the machine's capabilities
// themselves, without an agent.
type capabilitiesFlags struct {
	flags   *pflag.FlagSet
	roots   *sysfs.Roots
	config  string
	refresh bool
}

func newCapabilitiesFlags(cmd *cobra.Command) *capabilitiesFlags {
	f := &capabilitiesFlags{flags: cmd.Flags(), roots: rootFlags(cmd.Flags())}
	cmd.Flags().StringVar(&f.config, "config", "", "the agent's configuration `FILE`, YAML")
	cmd.Flags().BoolVar(&f.refresh, "refresh", false, "ask everything again, ignoring remembered answers")
	return f
}

// capabilitiesDocument asks the machine. Nothing that it finds is an error: the
// document says it. A faulty configuration is one.
func (a *nodeCommands) capabilitiesDocument(ctx context.Context, f *capabilitiesFlags) (*capabilitiesv1.Capabilities, error) {
	// A process of some milliseconds and MiB ends before it has garbage worth
	// collecting: doing so took a quarter of its CPU time, on a busy machine more.
	debug.SetGCPercent(gcPercent)
	if err := a.checkRoots(f.flags, *f.roots); err != nil {
		return nil, err
	}
	cfg, err := sources.Load(f.config)
	if err != nil {
		return nil, err
	}
	s := cfg.Sources(sources.Options{
		Roots: *f.roots, KeepIn: a.answersFolder(cfg.StateDir), Version: program.Version(a.Version),
		Log: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	s.Refresh = f.refresh
	return capabilities.Collect(ctx, s)
}

// answersFolder is where answers are kept: the agent's folder, so that both
// have the same, or else the user's own; empty: nowhere.
func (a *nodeCommands) answersFolder(stateDir string) string {
	if unix.Access(stateDir, unix.W_OK|unix.X_OK) == nil {
		return stateDir
	}
	own := a.Getenv("XDG_CACHE_HOME")
	if own == "" && a.Getenv("HOME") != "" {
		own = filepath.Join(a.Getenv("HOME"), ".cache")
	}
	if !filepath.IsAbs(own) {
		return ""
	}
	own = filepath.Join(own, "vmlet")
	if err := os.MkdirAll(own, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return ""
	}
	return own
}
