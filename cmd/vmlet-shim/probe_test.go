package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/shim"
)

func TestParseProbe(t *testing.T) {
	for _, c := range []struct {
		args    []string
		command []string
		timeout time.Duration
	}{
		{[]string{"--timeout", "3s"}, []string{}, 3 * time.Second},
		{[]string{"--", "cat", "--timeout", "x"}, []string{"cat", "--timeout", "x"}, time.Second},
	} {
		o, err := parseProbe(c.args, t.Output())
		if err != nil || !slices.Equal(o.command, c.command) || o.timeout != c.timeout {
			t.Errorf("%q: %+v, %v", c.args, o, err)
		}
	}
	if _, err := parseProbe([]string{"--timeout", "0s"}, t.Output()); err == nil {
		t.Error("no time is no error")
	}
}

// TestProbeReports: the kubelet goes by the exit code, and a backup is no fault of the guest's.
func TestProbeReports(t *testing.T) {
	for _, c := range []struct {
		name   string
		probed shim.Probed
		code   int
		out    string
	}{
		{"well", shim.Probed{Output: "fine"}, 0, "fine"},
		{"ill", shim.Probed{Code: 7, Output: "out"}, 7, "out"},
		{"ill, of Windows", shim.Probed{Code: 256}, 1, ""},
		{"moving", shim.Probed{Moving: true}, 0, "being saved"},
		{"frozen", shim.Probed{Frozen: true}, 0, "frozen"},
	} {
		var out, errs bytes.Buffer
		if code := report(&c.probed, &out, &errs); code != c.code || !strings.Contains(out.String(), c.out) {
			t.Errorf("%s: exit code %d, %q", c.name, code, out.String())
		}
	}
}

// TestProbeWithoutShim: it fails, and does not wait.
func TestProbeWithoutShim(t *testing.T) {
	o := probeOptions{volume: t.TempDir(), timeout: time.Hour}
	if _, err := o.ask(context.Background()); err == nil {
		t.Error("no error")
	}
}
