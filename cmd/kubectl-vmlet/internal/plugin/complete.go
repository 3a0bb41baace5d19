package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Completion has little time, and few names help.
const (
	completionTime  = 3 * time.Second
	completionNames = 500
)

// completeVM completes the names of the namespace's VMs. A cluster that doesn't answer has none.
func completeVM(env Environment, target *Target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, vm := range list(cmd, env, target) {
			names = append(names, cobra.CompletionWithDesc(vm.Name, string(vm.Status.PrintableStatus)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func list(cmd *cobra.Command, env Environment, target *Target) []kubevirtv1.VirtualMachine {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	cluster, err := env.Connect(target)
	if err != nil {
		return nil
	}
	var all kubevirtv1.VirtualMachineList
	if err := cluster.Client.List(ctx, &all, client.InNamespace(cluster.Namespace), client.Limit(completionNames)); err != nil {
		return nil
	}
	return all.Items
}

// completeFlags keeps shells from offering files for names that are looked up nowhere here.
func completeFlags(root *cobra.Command) error {
	var errs []error
	for _, name := range []string{"namespace", "context", "cluster", "user"} {
		errs = append(errs, root.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return errors.Join(errs...)
}
