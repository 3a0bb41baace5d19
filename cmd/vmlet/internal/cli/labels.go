package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	nodelabels "github.com/vmlet/vmlet/capabilities/labels"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/standard"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// Formats that only labels have.
const (
	formatText output.Format = "text"
	formatNFD  output.Format = "nfd"
)

// maxLabelsFile bounds the file of --previous, in bytes: more than etcd takes
// for a whole Node.
const maxLabelsFile = 4 << 20

// labelsFlags are those of `labels`, beside those of how the machine is asked.
type labelsFlags struct {
	hypervisor, previous, write string
}

func (a *nodeCommands) labelsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "labels",
		Short: "Print the labels that this node would carry in Kubernetes",
		Long: `Print the labels that this node would carry in Kubernetes: those of KubeVirt's
node labeller, and vmlet's own. Neither Kubernetes nor the agent is asked.

What could not be asked is printed on the standard error. With --previous, and with
--write where the file is there already, the labels that follow from it are as
they were; without, they are missing.`,
		Example: `  vmlet labels
  vmlet labels -o json > labels.json
  vmlet labels -o json --previous labels.json
  vmlet labels --write /etc/kubernetes/node-feature-discovery/features.d/vmlet`,
		Args: arguments(0, 0),
	}
	machine := newCapabilitiesFlags(cmd)
	f := &labelsFlags{}
	cmd.Flags().StringVar(&f.hypervisor, "hypervisor", "", "labels of guests under the hypervisor of this `NAME` (default: what the node uses)")
	cmd.Flags().StringVar(&f.previous, "previous", "", "JSON `FILE` with the labels that the node has")
	cmd.Flags().StringVar(&f.write, "write", "", "replace this `FILE` of Node Feature Discovery, and print nothing")
	fixed(cmd, "hypervisor", append([]string{hypervisor.NameAuto}, standard.Registry().Names()...)...)
	format := outputFlag(cmd, formatText, output.JSON, output.YAML, formatNFD)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.write != "" && cmd.Flags().Changed("output") && format.Value != formatNFD {
			return usagef("--write writes a file of the format nfd: leave out -o %s", format.Value)
		}
		previous, err := f.before()
		if err != nil {
			return err
		}
		doc, err := a.capabilitiesDocument(cmd.Context(), machine)
		if err != nil {
			return err
		}
		return a.putLabels(doc, f, previous, format.Value)
	}
	return cmd
}

// putLabels prints or writes the labels that follow from a document.
func (a *nodeCommands) putLabels(doc *capabilitiesv1.Capabilities, f *labelsFlags, previous map[string]string, format output.Format) error {
	wanted := f.hypervisor
	if wanted == hypervisor.NameAuto {
		wanted = ""
	}
	now, err := nodelabels.Of(doc, wanted)
	if err != nil {
		return err
	}
	merged, kept := nodelabels.Merge(previous, now)
	a.labelNotes(doc, now, kept)
	if f.write != "" {
		return nodelabels.WriteNFD(f.write, merged)
	}
	switch format {
	case formatNFD:
		_, err = a.Stdout.Write(nodelabels.FormatNFD(merged))
		return err
	case output.JSON, output.YAML:
		return output.Document(a.Stdout, format, merged)
	}
	rows := [][]string{{"LABEL", "VALUE"}}
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		rows = append(rows, []string{key, merged[key]})
	}
	return output.Columns(a.Stdout, rows)
}

// labelNotes says on the standard error what is not known.
func (a *nodeCommands) labelNotes(doc *capabilitiesv1.Capabilities, now nodelabels.Set, kept []nodelabels.Kept) {
	if w := doc.GetDefaultHypervisorWarning(); w != "" {
		a.notef("%s", w)
	}
	for _, u := range now.Unknown() {
		a.notef("could not be asked: %s", u)
	}
	for _, note := range now.Notes {
		a.notef("%s", note)
	}
	count, first := map[string]int{}, map[string]string{}
	for _, k := range kept {
		if count[k.Fact]++; count[k.Fact] == 1 {
			first[k.Fact] = k.Key
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(count)) {
		more := ""
		if n := count[fact] - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		a.notef("as before, since %s could not be asked: %s%s", fact, first[fact], more)
	}
}

// before are the labels that the node has had, as far as they are given. A file
// that is to be replaced must be one of labels, or not there yet.
func (f *labelsFlags) before() (map[string]string, error) {
	var had map[string]string
	if f.write != "" {
		var err error
		if had, err = nodelabels.ReadNFD(f.write); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("--write: %w", err)
		}
	}
	if f.previous != "" {
		return readLabels(f.previous)
	}
	return had, nil
}

func readLabels(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--previous: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxLabelsFile+1))
	if err != nil {
		return nil, fmt.Errorf("--previous: %w", err)
	}
	if len(content) > maxLabelsFile {
		return nil, fmt.Errorf("--previous: %s has more than %d bytes: labels are wanted", path, maxLabelsFile)
	}
	var had map[string]string
	if err := json.Unmarshal(content, &had); err != nil {
		return nil, fmt.Errorf("--previous: %s: one object of key to value is wanted, as -o json prints it: %w", path, err)
	}
	return had, nil
}
