package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/agent"
	"github.com/vmlet/vmlet/agent/config"
)

// agentGCPercent keeps the agent's heap close to what is in use: its garbage comes in
// bursts, of a scrape or an adoption, and its memory is what the node's guests lack.
const agentGCPercent = 50

// agentMemoryShare is how much of the agent's cgroup's memory limit Go may use before it
// collects garbage more often: the rest is for the program's own pages and the kernel's.
const agentMemoryShare = 0.8

// agentFlags are those of `agent`; what is not given is the configuration's.
type agentFlags struct {
	config, stateDir, runDir string
	logLevel, logFormat      string
}

func (a *app) agentCmd() *cobra.Command {
	cmd, f := a.agentCommand()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.agentConfig(cmd, *f)
		if err != nil {
			return err
		}
		if err := agent.Confine(cfg); err != nil {
			return err
		}
		debug.SetGCPercent(agentGCPercent)
		limitMemory(cfg.Log, memlimit.FromCgroup)
		err = agent.Run(cmd.Context(), cfg)
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			err = fmt.Errorf("%w: the agent has to be root", err)
		}
		return err
	}
	return cmd
}

// limitMemory keeps Go's memory within a limit, unless GOMEMLIMIT says what it may have.
func limitMemory(log *slog.Logger, limit memlimit.Provider) {
	set, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(agentMemoryShare))
	switch {
	case err != nil:
		log.Warn("memory limit of the agent's cgroup is unknown", "error", err)
	case set < math.MaxInt64:
		log.Info("memory limit set", "bytes", set)
	}
}

// agentCommand is the command with its flags, which does nothing yet.
func (a *app) agentCommand() (*cobra.Command, *agentFlags) {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent that the other commands talk to",
		Long: `Run the agent that the other commands talk to, until SIGTERM or Ctrl-C. Its
machines outlive it: the next agent on the same folders goes on with them.
What a flag says counts, not the configuration file.`,
		Example: "  vmlet agent\n  vmlet agent --config /etc/vmlet/agent.yaml --log-format json",
		Args:    arguments(0, 0),
	}
	f := &agentFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration `FILE`, YAML")
	flags.StringVar(&f.stateDir, "state-dir", "", "`FOLDER` of what survives a reboot: specifications, logs (default "+config.DefaultStateDir+")")
	flags.StringVar(&f.runDir, "run-dir", "", "`FOLDER` of what does not: sockets, guest memory (default "+config.DefaultRunDir+")")
	flags.StringVar(&f.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "`FORMAT`: text or json")
	fixed(cmd, "log-level", "debug", "info", "warn", "error")
	fixed(cmd, "log-format", "text", "json")
	return cmd, f
}

func (a *app) agentConfig(cmd *cobra.Command, f agentFlags) (config.Config, error) {
	log, err := newLog(a.Stderr, f)
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.Load(f.config)
	if err != nil {
		return cfg, err
	}
	socket := ""
	if cmd.Flags().Changed("socket") || a.Getenv("VMLET_SOCKET") != "" {
		socket = a.socket
	}
	for _, path := range []struct {
		flag  string
		field *string
	}{{f.stateDir, &cfg.StateDir}, {f.runDir, &cfg.RunDir}, {socket, &cfg.Socket}} {
		if path.flag == "" {
			continue
		}
		if *path.field, err = filepath.Abs(path.flag); err != nil {
			return cfg, fmt.Errorf("the current folder: %w", err)
		}
	}
	cfg.Version = buildVersion(a.Version)
	cfg.Log = log
	return cfg, nil
}

func newLog(w io.Writer, f agentFlags) (*slog.Logger, error) {
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
