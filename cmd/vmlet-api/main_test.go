package main

import (
	"io"
	"strings"
	"testing"
)

// TestBadFlags: the program ends before it does anything.
func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--namespace is required outside of a pod"},
		{[]string{"--namespace", "vmlet", "--log-format", "xml"}, `--log-format: "xml"`},
		{[]string{"--namespace", "vmlet", "--webhook-port", "0"}, "--webhook-port: 0 is no port"},
		{[]string{"--namespace", "vmlet", "--webhook-port", "65536"}, "--webhook-port: 65536 is no port"},
		{[]string{"--namespace", "vmlet", "--subresources-port", "-1"}, "--subresources-port: -1 is no port"},
		{[]string{"--namespace", "vmlet", "--kubevirt-version", "newest"}, `--kubevirt-version: "newest" is no version`},
		{[]string{"--namespace", "vmlet", "--kubeconfig", "/does/not/exist"}, "--kubeconfig: "},
		{[]string{"extra"}, `"extra"`},
	} {
		cmd := command()
		cmd.SetArgs(c.args)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q in it", c.args, err, c.want)
		}
	}
}
