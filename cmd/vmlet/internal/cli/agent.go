package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// agentProgram is the agent's, which this program has nothing of.
const agentProgram = "vmlet-agent"

func (a *nodeCommands) agentCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent that the other commands talk to",
		Long: `Run the agent that the other commands talk to: vmlet-agent, with the same flags,
from the folder of this program, else from PATH. See: vmlet-agent --help`,
		Example:            "  vmlet agent\n  vmlet agent --config /etc/vmlet/agent.yaml --log-format json",
		DisableFlagParsing: true, // they are vmlet-agent's
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// A signal that came before would be forgotten by the program that follows.
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		program, err := a.findAgent()
		if err != nil {
			return err
		}
		return fmt.Errorf("executing %s: %w", program, a.Exec(program, append([]string{program}, args...)))
	}
	return cmd
}

// findAgent returns the path of vmlet-agent: that beside this program is of the same
// version, most likely.
func (a *nodeCommands) findAgent() (string, error) {
	beside := filepath.Join(filepath.Dir(a.Program), agentProgram)
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(agentProgram); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("no program %s, and no %s in PATH (%s): install it beside vmlet", beside, agentProgram, a.Getenv("PATH"))
}
