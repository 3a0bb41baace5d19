package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/memory"
)

// imageCommands save and restore VMs.
type imageCommands struct{ *agent }

func (a *imageCommands) imageCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Look at saved images; needs no agent",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imageInspectCmd(), a.imageVerifyCmd())
	return cmd
}

func (a *imageCommands) imageInspectCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "inspect DIR",
		Short:             "Show what an image is; its data is not read",
		Example:           "  vmlet image inspect /srv/images/web-1\n  vmlet image inspect /srv/images/web-1 -o json | jq .specification",
		Args:              arguments(1, 1),
		ValidArgsFunction: completeDir,
	}
	format := outputFlag(cmd, output.Table, output.JSON, output.YAML, output.Name)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		img, err := memory.Open(args[0])
		if err != nil {
			return err
		}
		defer img.Close()
		m := img.Manifest()
		switch format.Value {
		case output.JSON, output.YAML:
			// The sums of a large image are megabytes: their number will do.
			return output.Document(a.Stdout, format.Value, struct {
				*memory.Manifest
				Chunks int `json:"chunks"`
			}{m, len(m.Chunks)})
		case output.Name:
			a.printf("%s\n", m.ID)
			return nil
		}
		return output.Columns(a.Stdout, a.describeImage(img.Path(), m))
	}
	return cmd
}

func (a *imageCommands) describeImage(path string, m *memory.Manifest) [][]string {
	rows := [][]string{
		{"Image:", path},
		{"ID:", m.ID},
		{"Machine:", machineName(m.Specification)},
		{"Created:", fmt.Sprintf("%s (%s ago)", m.CreatedAt.UTC().Format(time.RFC3339), output.Age(m.CreatedAt, a.Now()))},
		{"VMM:", strings.TrimSpace(m.VMM.Name + " " + m.VMM.Version)},
		{"Accelerator:", m.Accelerator},
		{"Machine type:", cmp.Or(m.MachineType, "-")},
		{"CPU:", cpuText(m.CPU)},
		{"Memory:", output.Bytes(m.MemorySize) + memoryNote(m)},
		{"State:", output.Bytes(m.StateSize)},
	}
	for _, d := range m.Disks {
		rows = append(rows, []string{"Disk " + d.Name + ":", fmt.Sprintf("%s (%s, %s)", d.Path, d.Format, output.Bytes(d.Size))})
	}
	return rows
}

// cpuText leaves the features to -o json: with them all it would fill a page.
func cpuText(c memory.CPU) string {
	if n := len(c.Features); n > 0 {
		return fmt.Sprintf("%s (features: %d, listed by -o json)", c.Model, n)
	}
	return c.Model
}

func memoryNote(m *memory.Manifest) string {
	if m.Layout == memory.LayoutStream {
		return ", inside the state: restores eagerly only"
	}
	return ", " + output.Bytes(m.DataBytes) + " of it data"
}

// machineName returns the name in an image's specification, which is opaque to
// the image.
func machineName(spec json.RawMessage) string {
	var s struct {
		Name string `json:"name"`
	}
	if len(spec) == 0 || json.Unmarshal(spec, &s) != nil {
		return ""
	}
	return s.Name
}

func (a *imageCommands) imageVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "verify DIR...",
		Short:             "Read whole images and compare them with their checksums",
		Example:           "  vmlet image verify /srv/images/*",
		Args:              arguments(1, math.MaxInt),
		ValidArgsFunction: completeDirs,
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var failed failures
			for _, dir := range dirs {
				if err := a.verifyImage(cmd, dir); err != nil {
					failed = append(failed, err)
				}
			}
			return failed.orNil()
		},
	}
}

func (a *imageCommands) verifyImage(cmd *cobra.Command, dir string) (err error) {
	img, err := memory.Open(dir)
	if err != nil {
		return err
	}
	defer img.Close()
	p := a.newProgress("verify")
	var mu sync.Mutex // progress comes from several goroutines
	err = img.Verify(cmd.Context(), func(done, total uint64) {
		mu.Lock()
		defer mu.Unlock()
		p.update("", done, total)
	})
	p.end(err)
	if err != nil {
		return err
	}
	m := img.Manifest()
	a.printf("%s is whole (%s of memory, %s of state)\n", img.Path(), output.Bytes(m.DataBytes), output.Bytes(m.StateSize))
	return nil
}

func completeDirs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}
