package main

import (
	"io"
	"strings"
	"testing"
)

// TestBadFlags: the program ends before it does anything, with all faults at once.
func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"--namespace is required outside of a pod", "--launcher-image is required"}},
		{[]string{"--namespace", "vmlet", "--launcher-image", "i", "--log-level", "loud"}, []string{`--log-level: "loud"`}},
		{[]string{"--namespace", "vmlet", "--launcher-image", "i", "--kubeconfig", "/does/not/exist"}, []string{"--kubeconfig: "}},
		{[]string{"--namespace", "vmlet", "extra"}, []string{`"extra"`}},
		{[]string{"--namespace", "vmlet", "--launcher-image", "i", "--cluster-domain", "cluster.local."}, []string{`--cluster-domain: "cluster.local."`}},
		{[]string{"--namespace", "vmlet", "--launcher-image", "i", "--saves-per-node", "0"}, []string{"--saves-per-node: 0"}},
		{[]string{"--unknown"}, []string{"--unknown"}},
	} {
		cmd := command()
		cmd.SetArgs(c.args)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q in it", c.args, err, want)
			}
		}
	}
}
