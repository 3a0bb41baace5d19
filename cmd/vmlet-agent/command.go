package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/agent"
	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/capabilities/clusterwide"
	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/internal/memorylimit"
	"github.com/vmlet/vmlet/internal/program"
)

// Exit codes, as those of the vmlet command.
const (
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent keeps the agent's heap close to what is in use: its garbage comes in
// bursts, of a scrape or an adoption, and its memory is what the node's guests lack.
const gcPercent = 50

// surroundings are what the program takes from its process.
type surroundings struct {
	stdout, stderr io.Writer
	getenv         func(string) string
}

// flags are what is given on the command line; what is not is the configuration's.
type flags struct {
	config, stateDir, runDir, socket string
	// clusterConfig is a file that need not be there.
	clusterConfig string
	// cluster is what it says.
	cluster             clusterwide.Configuration
	logLevel, logFormat string
	check               bool
}

// usageError is a fault of the command line that is found after its flags are read.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// execute runs the agent until ctx ends, and returns the exit code.
func execute(ctx context.Context, s surroundings, args []string) int {
	running := false
	cmd, f := command(s)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		running = true
		cfg, err := f.agentConfig(s)
		if err != nil {
			return err
		}
		if f.check {
			return cfg.Check()
		}
		ctx, end := untilChanged(cmd.Context(), f.clusterConfig, f.cluster, cfg.Log)
		defer end()
		return runAgent(ctx, cfg)
	}
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(s.stderr, "vmlet-agent:", err)
	if running && !errors.As(err, new(usageError)) {
		return exitFailed
	}
	fmt.Fprintln(s.stderr, "See: vmlet-agent --help")
	return exitUsage
}

func runAgent(ctx context.Context, cfg config.Config) error {
	if err := agent.Confine(cfg); err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	memorylimit.Set(cfg.Log, memlimit.FromCgroup)
	err := agent.Run(ctx, cfg)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		err = fmt.Errorf("%w: the agent has to be root", err)
	}
	return err
}

// command is the command with its flags, which does nothing yet.
func command(s surroundings) (*cobra.Command, *flags) {
	cmd := &cobra.Command{
		Use:   "vmlet-agent",
		Short: "Run the agent that vmlet's commands talk to",
		Long: `Run the agent that vmlet's commands talk to, until SIGTERM or Ctrl-C. Its
machines outlive it: the next agent on the same folders goes on with them.
What a flag says counts, not the configuration file.`,
		Example:       "  vmlet-agent\n  vmlet-agent --config /etc/vmlet/agent.yaml --log-format json",
		Version:       program.Version(version),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("wrong number of arguments (%d): want %s", len(args), cmd.UseLine())
		},
	}
	cmd.SetOut(s.stdout)
	cmd.SetErr(s.stderr)
	f := &flags{}
	set := cmd.Flags()
	set.StringVar(&f.config, "config", "", "configuration `FILE`, YAML")
	set.StringVar(&f.clusterConfig, "cluster-config", "", "`FILE` with what the cluster says to all nodes; the agent ends when it changes")
	set.StringVar(&f.stateDir, "state-dir", "", "`FOLDER` of what survives a reboot: specifications, logs (default "+sources.DefaultStateDir+")")
	set.StringVar(&f.runDir, "run-dir", "", "`FOLDER` of what does not: sockets, guest memory (default "+config.DefaultRunDir+")")
	set.StringVar(&f.socket, "socket", s.getenv("VMLET_SOCKET"), "serve the API at this `PATH`, or set VMLET_SOCKET (default "+config.SocketName+" in the run folder)")
	set.StringVar(&f.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	set.StringVar(&f.logFormat, "log-format", "text", "`FORMAT`: text or json")
	set.BoolVar(&f.check, "check", false, "say what is wrong with the configuration, and run nothing")
	return cmd, f
}

// agentConfig is the configuration file's, with what the flags say in its place.
func (f *flags) agentConfig(s surroundings) (config.Config, error) {
	log, err := newLog(s.stderr, f)
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.Load(f.config)
	if err != nil {
		return cfg, err
	}
	for _, path := range []struct {
		flag  string
		field *string
	}{{f.stateDir, &cfg.StateDir}, {f.runDir, &cfg.RunDir}, {f.socket, &cfg.Socket}} {
		if path.flag == "" {
			continue
		}
		if *path.field, err = filepath.Abs(path.flag); err != nil {
			return cfg, fmt.Errorf("the current folder: %w", err)
		}
	}
	cfg.Version = program.Version(version)
	cfg.Log = log
	cfg, f.cluster = underCluster(cfg, f.clusterConfig, log)
	return cfg, nil
}

func newLog(w io.Writer, f *flags) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usagef("--log-level %q: debug, info, warn or error is wanted", f.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, usagef("--log-format %q: text or json is wanted", f.logFormat)
}
