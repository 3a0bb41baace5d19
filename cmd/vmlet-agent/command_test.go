package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/agent/config"
)

// configOf returns the configuration that arguments make.
func configOf(t *testing.T, env map[string]string, args ...string) (config.Config, error) {
	t.Helper()
	s := surroundings{io.Discard, io.Discard, func(key string) string { return env[key] }}
	cmd, f := command(s)
	var cfg config.Config
	var err error
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err = f.agentConfig(s)
		return nil
	}
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return cfg, err
}

func TestAgentConfig(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("c.yaml", []byte("stateDir: /from/file\nsocket: /from/file.sock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name               string
		env                map[string]string
		args               []string
		state, run, socket string
	}{
		{"defaults are the agent's", nil, nil, "", "", ""},
		{"flags", nil, []string{"--state-dir", "s", "--run-dir", "/r", "--socket", "x.sock"}, filepath.Join(dir, "s"), "/r", filepath.Join(dir, "x.sock")},
		{"file", nil, []string{"--config", "c.yaml"}, "/from/file", "", "/from/file.sock"},
		{"flags before file", nil, []string{"--config", "c.yaml", "--state-dir", "/s"}, "/s", "", "/from/file.sock"},
		{"environment", map[string]string{"VMLET_SOCKET": "/env.sock"}, []string{"--config", "c.yaml"}, "/from/file", "", "/env.sock"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := configOf(t, test.env, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.StateDir != test.state || cfg.RunDir != test.run || cfg.Socket != test.socket || cfg.Version == "" {
				t.Errorf("%+v", cfg)
			}
			if !cfg.Log.Enabled(t.Context(), slog.LevelInfo) || cfg.Log.Enabled(t.Context(), slog.LevelDebug) {
				t.Error("the level is not info")
			}
		})
	}
}

func TestAgentRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("users.yaml", []byte("users: {count: 5}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"--log-level loud", exitUsage, `--log-level "loud"`},
		{"--log-format xml", exitUsage, `--log-format "xml"`},
		{"--config /nonexistent", exitFailed, "/nonexistent"},
		{"extra", exitUsage, "want vmlet-agent [flags]"},
		{"--check --config users.yaml", exitFailed, "configuration: users: first 0"},
		{"--check", 0, ""},
		{"--nonesuch", exitUsage, "unknown flag: --nonesuch"},
	} {
		var stderr bytes.Buffer
		code := execute(t.Context(), surroundings{io.Discard, &stderr, func(string) string { return "" }}, strings.Fields(test.args))
		if code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: exit code %d, %q: want %d, %q", test.args, code, &stderr, test.code, test.want)
		}
	}
}
