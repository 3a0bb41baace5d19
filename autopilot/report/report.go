// Package report shows what the autopilot would do with each asset, and why: to `vmlet-autopilot
// render` and to the debug pages. Start reading at Rows.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/decide"
	"github.com/vmlet/vmlet/autopilot/evaluate"
	"github.com/vmlet/vmlet/autopilot/facts"
)

// Status is that of an asset.
type Status string

// Statuses.
const (
	// Included is applied.
	Included Status = "INCLUDED"
	// Excluded is not applied to this cluster, or left alone.
	Excluded Status = "EXCLUDED"
	// Filtered is named by the annotation disabled-resources.
	Filtered Status = "FILTERED"
	Error    Status = "ERROR"
)

// Formats of a report.
const (
	YAML  = "yaml"
	JSON  = "json"
	Table = "status"
)

// Row is an asset.
type Row struct {
	Asset      string              `json:"asset"`
	Path       string              `json:"path"`
	Component  string              `json:"component"`
	Status     Status              `json:"status"`
	Reason     string              `json:"reason,omitempty"`
	Conditions []catalog.Condition `json:"conditions,omitempty"`
	Object     map[string]any      `json:"object,omitempty"`
}

// Rows are assets as they are decided about.
func Rows(ctx context.Context, assets []*catalog.Asset, f facts.Facts, e evaluate.Evaluator) (rows []Row) {
	for _, a := range assets {
		_, d, err := e.Look(ctx, a, f)
		row := Row{Asset: a.Name, Path: a.Path, Component: a.Component, Reason: d.Detail, Conditions: a.Conditions, Status: Excluded}
		if d.Object != nil {
			row.Object = d.Object.Object
		}
		switch {
		case err != nil:
			row.Status, row.Reason = Error, err.Error()
		case d.Action == decide.Fail:
			row.Status, row.Reason = Error, d.Reason+": "+d.Detail
		case d.Action == decide.Filter:
			row.Status = Filtered
		case d.Action == decide.Compare:
			row.Status = Included
			if d.PatchFault != nil {
				row.Reason = "applied without its patch: " + d.PatchFault.Error()
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Shown are the rows without those that are left out, unless all are wanted.
func Shown(rows []Row, all bool) (shown []Row) {
	for _, r := range rows {
		if all || r.Status == Included || r.Status == Error {
			shown = append(shown, r)
		}
	}
	return shown
}

// Write writes rows in a format. YAML can be applied as it is: what is not applied is a comment.
func Write(to io.Writer, format string, rows []Row, all bool) error {
	switch shown := Shown(rows, all); format {
	case YAML:
		return writeYAML(to, shown)
	case JSON:
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(append([]Row{}, shown...))
	case Table:
		return writeTable(to, shown, rows)
	}
	return fmt.Errorf("format %.20q is none of %s, %s and %s", format, YAML, JSON, Table)
}

func writeYAML(to io.Writer, rows []Row) error {
	if len(rows) == 0 {
		_, err := io.WriteString(to, "# Nothing is applied: --output status says why.\n")
		return err
	}
	for _, r := range rows {
		fmt.Fprintf(to, "# Asset: %s\n# Path: %s\n# Component: %s\n# Status: %s\n", r.Asset, r.Path, r.Component, r.Status)
		if r.Reason != "" {
			fmt.Fprintf(to, "# Reason: %.300q\n", r.Reason)
		}
		if r.Status == Included {
			text, err := yaml.Marshal(r.Object)
			if err != nil {
				return err
			}
			if _, err := to.Write(text); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(to, "---\n"); err != nil {
			return err
		}
	}
	return nil
}

func writeTable(to io.Writer, shown, rows []Row) error {
	const line = "%-30s %-10s %-22s %s\n"
	fmt.Fprintf(to, line, "ASSET", "STATUS", "COMPONENT", "REASON")
	count := make(map[Status]int)
	for _, r := range rows {
		count[r.Status]++
	}
	for _, r := range shown {
		reason := r.Reason
		if reason == "" {
			reason = "-"
		}
		fmt.Fprintf(to, line, r.Asset, r.Status, r.Component, reason)
	}
	_, err := fmt.Fprintf(to, "Summary: %d included, %d excluded, %d filtered, %d errors\n", count[Included], count[Excluded], count[Filtered], count[Error])
	return err
}
