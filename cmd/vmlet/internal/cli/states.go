package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// running tells the states that have a VMM.
func running(s nodev1.State) bool {
	switch s {
	case nodev1.State_STATE_STARTING, nodev1.State_STATE_RUNNING, nodev1.State_STATE_PAUSED,
		nodev1.State_STATE_SAVING, nodev1.State_STATE_RESTORING, nodev1.State_STATE_STOPPING:
		return true
	}
	return false
}

func startable(s nodev1.State) bool { return !running(s) }

func paused(s nodev1.State) bool { return s == nodev1.State_STATE_PAUSED }

// labels writes labels as a selector would, sorted.
func labels(m map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, k+"="+m[k])
	}
	return strings.Join(pairs, ",")
}

// completionTimeout is how long a user waits for the shell to complete a name.
const completionTimeout = 2 * time.Second

// completeNames completes the names of the machines in fitting states (nil:
// all), one or several.
func (a *agent) completeNames(fits func(nodev1.State) bool, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := a.connectWithin(ctx, 0)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		r, err := c.ListVMs(ctx, &nodev1.ListVMsRequest{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, vm := range r.GetVms() {
			name, state := nameOf(vm), vm.GetStatus().GetState()
			if (fits == nil || fits(state)) && !slices.Contains(args, name) {
				names = append(names, cobra.CompletionWithDesc(name, stateName(state)))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// fixed completes a flag with words.
func fixed(cmd *cobra.Command, flag string, words ...string) {
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("flag --%s of %s: %v", flag, cmd.Name(), err)) // a fault of this program
	}
}

func completeDir(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// stateName returns the design's word for a state: "running".
func stateName(s nodev1.State) string {
	name, found := strings.CutPrefix(s.String(), "STATE_")
	if !found || s == nodev1.State_STATE_UNSPECIFIED {
		return "unknown"
	}
	return strings.ToLower(name)
}

// nameOf is what the agent knows a VM by: NAMESPACE/POD of one in a pod.
func nameOf(vm *nodev1.VirtualMachine) string {
	if pod := vm.GetStatus().GetPod(); pod != nil {
		return pod.GetNamespace() + "/" + pod.GetName()
	}
	return vm.GetSpec().GetName()
}
