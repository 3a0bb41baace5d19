package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/text"
	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/why"
)

// Renewed is what vmlet-api says of a renewal.
type Renewed struct {
	VersionBefore       string `json:"versionBefore"`
	Version             string `json:"version"`
	StoppedMicroseconds int64  `json:"stoppedMicroseconds"`
	Warning             string `json:"warning,omitempty"`
}

// renewer returns what asks for subresource renew of a VM's instance.
func renewer(api rest.Interface) func(ctx context.Context, namespace, name string) (Renewed, error) {
	return func(ctx context.Context, namespace, name string) (r Renewed, err error) {
		content, err := api.Put().Namespace(namespace).Resource("virtualmachineinstances").Name(name).SubResource("renew").Body([]byte("{}")).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(content, &r)
		}
		return r, err
	}
}

func renewCommand(env Environment, target *Target) *cobra.Command {
	return &cobra.Command{
		Use:   "renew VM",
		Short: "Hand a VM's running guest over to a new process of its VMM",
		Long: "Start the VMM's program once more in the VM's pod, and hand the guest over to it. The guest is stopped for some\n" +
			"milliseconds. The program is that of the pod's image: only a new pod has a newer one. If the renewal fails,\n" +
			"the guest continues where it was.",
		Example:           "  kubectl vmlet renew web",
		Args:              oneVM,
		ValidArgsFunction: completeVM(env, target),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Connect(target)
			if err != nil {
				return err
			}
			r, err := c.Renew(cmd.Context(), c.Namespace, args[0])
			if apierrors.IsNotFound(err) {
				return &why.NotFoundError{Namespace: c.Namespace, Name: args[0]}
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(env.Out, text.Safe(r.sentence(args[0])))
			return nil
		},
	}
}

// sentence says what a renewal has done.
func (r Renewed) sentence(name string) string {
	stopped := (time.Duration(r.StoppedMicroseconds) * time.Microsecond).Round(100 * time.Microsecond)
	said := fmt.Sprintf("VM %s runs in a new VMM of version %s (before: %s); the guest was stopped for %v.", name, r.Version, r.VersionBefore, stopped)
	if r.Warning != "" {
		said += " " + r.Warning
	}
	return said
}
