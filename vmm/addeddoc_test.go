package vmm_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/internal/doctest"
	"github.com/vmlet/vmlet/vmm"
)

// TestAddedDocument: every piece of Go in docs/adding-a-vmm.md is in added_test.go,
// which is compiled and run, word for word; every method of the sample is in the
// document; and the lines that it asks for are where it says.
func TestAddedDocument(t *testing.T) {
	doctest.Compare(t, "../docs/adding-a-vmm.md", "added_test.go", regexp.MustCompile(`(?m)^func \(s? ?Sample\) .*$`))
	for path, line := range map[string]string{
		"../capabilities/sources/sources.go": "cloudhypervisor.New(cloudhypervisor.Config{",
		"../cmd/vmlet-shim/main.go":          "chdriver.CloudHypervisor{},",
		"../spec/values.go":                  "func vmms() []string",
		"../test/e2e/target_test.go":         "ofCloudHypervisor(t)",
		"../cmd/vmlet/internal/cli/run.go":   `fixed(cmd, "vmm", "auto", "qemu", "cloud-hypervisor")`,
	} {
		if !strings.Contains(doctest.Read(t, path), line) {
			t.Errorf("%s no longer has %q: put docs/adding-a-vmm.md right", path, line)
		}
	}
}

// TestAddedMonitor has the sample's monitor speak with a program of its kind.
func TestAddedMonitor(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		for in := bufio.NewScanner(theirs); in.Scan(); {
			switch in.Text() {
			case "state":
				fmt.Fprintln(theirs, "running")
			case "pause":
				fmt.Fprint(theirs, "ok\n!paused\n")
			default:
				fmt.Fprintln(theirs, "error: what?")
			}
		}
	}()
	ctx := t.Context()
	m, err := Sample{}.Connect(ctx, func(context.Context, string) (net.Conn, error) { return ours, nil })
	if err != nil {
		t.Fatal(err)
	}
	if s, err := m.Status(ctx); err != nil || !s.Running {
		t.Errorf("status %+v, %v", s, err)
	}
	if err := m.Pause(ctx); err != nil {
		t.Error(err)
	}
	if e := <-m.Events(); e.Change != vmm.ChangePaused {
		t.Errorf("event %+v, want one of a pause", e)
	}
	if err := m.Reset(ctx); err == nil || !strings.Contains(err.Error(), "what?") {
		t.Errorf("reset: %v, want what the program says", err)
	}
	m.Close()
	if _, open := <-m.Events(); open {
		t.Error("events go on after Close")
	}
}
