package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/apply"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/evaluate"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/program"
	"github.com/vmlet/vmlet/autopilot/report"
)

// maxInput bounds a file of objects, in bytes.
const maxInput = 16 << 20

// rendering is what `render` is asked for.
type rendering struct {
	file, kubeconfig, namespace, configuration, asset, scope, output string
	all                                                              bool
}

func renderCommand() *cobra.Command {
	var r rendering
	cmd := &cobra.Command{
		Use: "render", Short: "Show what is applied, and why other assets are not", Args: noArgs,
		Long: `Show what is applied to a cluster (--kubeconfig), or would be to one that a file describes (--file).

The file has the platform object (HyperConverged, KubeVirt, or the ConfigMap vmlet-platform), and may have
further objects of the cluster: CustomResourceDefinitions, Namespaces, Nodes, and what assets look up.
Without a CustomResourceDefinition in it all kinds count as served.

Exit status: 0; 1 if an asset failed, or an annotation of the platform object has a fault; 2 if the flags or the file are wrong.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	set := cmd.Flags()
	set.StringVar(&r.file, "file", "", "`FILE` with the platform object; - is the standard input")
	set.StringVar(&r.file, "hco-file", "", "the same as --file")
	set.StringVar(&r.kubeconfig, "kubeconfig", "", "`FILE` that says where the API server is")
	set.StringVar(&r.namespace, "namespace", defaultNamespace, "`NAMESPACE` of the autopilot")
	set.StringVar(&r.configuration, "configuration-namespace", "", "`NAMESPACE` whose HyperConverged or KubeVirt object counts in a cluster (default: that of --namespace)")
	set.StringVar(&r.asset, "asset", "", "`NAME` of the only asset to show")
	set.StringVar(&r.scope, "scope", "", "`VALUE` in place of the annotation "+anchor.Gate+": true, or names of assets and groups")
	set.StringVar(&r.output, "output", report.YAML, "`FORMAT`: yaml, json or status")
	set.BoolVar(&r.all, "show-excluded", false, "show assets that are not applied, too; status always does")
	return cmd
}

func (r rendering) run(ctx context.Context, out io.Writer) error {
	c, err := catalog.Embedded()
	if err != nil {
		return err
	}
	assets := c.Assets
	if r.asset != "" {
		assets = []*catalog.Asset{c.Named(r.asset)}
	}
	var faults []error
	if (r.file == "") == (r.kubeconfig == "") {
		faults = append(faults, errors.New("choose --file or --kubeconfig"))
	}
	if assets[0] == nil {
		faults = append(faults, fmt.Errorf("--asset: there is no asset %q: `vmlet-autopilot render --output status` lists them", r.asset))
	}
	if !slices.Contains([]string{report.YAML, report.JSON, report.Table}, r.output) {
		faults = append(faults, fmt.Errorf("--output: %q is none of yaml, json and status", r.output))
	}
	if err := errors.Join(faults...); err != nil {
		return usage{err}
	}
	from, f, err := r.facts(ctx)
	if err != nil {
		return err
	}
	if f.Anchor == nil {
		return usage{errors.New("there is no HyperConverged object, no KubeVirt object and no ConfigMap " + r.namespace + "/" + anchor.ConfigMapName)}
	}
	if r.scope != "" {
		f.Anchor.Scope = anchor.ParseScope(r.scope, true)
	}
	rows := report.Rows(ctx, assets, f, program.Evaluator(c, from))
	if err := report.Write(out, r.output, rows, r.all || r.output == report.Table); err != nil {
		return err
	}
	if err := evaluate.Annotations(c, f); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(row report.Row) bool { return row.Status == report.Error }) {
		return errAssets
	}
	return nil
}

// facts reads those of a file or a cluster, and returns what else is read from.
func (r rendering) facts(ctx context.Context) (facts.Reader, facts.Facts, error) {
	if r.kubeconfig != "" {
		config, err := connect(r.kubeconfig)
		if err != nil {
			return nil, facts.Facts{}, usage{err}
		}
		api, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, facts.Facts{}, err
		}
		reader := apply.Reader{API: api}
		f, err := facts.Gather(ctx, reader, r.namespace, r.configuration)
		return reader, f, err
	}
	text, err := readFile(r.file)
	if err != nil {
		return nil, facts.Facts{}, usage{err}
	}
	objects, err := facts.Parse(text)
	if err != nil {
		return nil, facts.Facts{}, usage{fmt.Errorf("%s: %w", r.file, err)}
	}
	f, err := objects.Facts(ctx, r.namespace)
	return objects, f, err
}

func readFile(name string) ([]byte, error) {
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	text, err := io.ReadAll(io.LimitReader(file, maxInput+1))
	if len(text) > maxInput {
		err = fmt.Errorf("%s has more than %d bytes", name, maxInput)
	}
	return text, err
}
