package program

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// parse returns options as flags make them.
func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := &Options{}
	cmd := &cobra.Command{}
	o.Flags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFaultsOfFlags: all of them at once, each by its flag.
func TestFaultsOfFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string // none: no fault
	}{
		{[]string{"--namespace", "vmlet"}, nil},
		{[]string{"--namespace", "vmlet", "--metrics-address", "off", "--health-address", "127.0.0.1:0"}, nil},
		{nil, []string{"--namespace is required outside of a pod"}},
		{[]string{"--namespace", "vmlet", "--agent-name", "", "--controller-name=", "--api-name="}, []string{
			"--agent-name is empty", "--controller-name is empty", "--api-name is empty"}},
		{[]string{"--metrics-address", "host:1", "--debug-address", "0.0.0.0:8081", "--health-address", "x"}, []string{
			"--namespace is required", `--metrics-address: "host:1" is no address`, "--debug-address: ", `--health-address: "x" is no address`}},
		{[]string{"--namespace", "vmlet", "--metrics-authentication", "password"}, []string{`--metrics-authentication: "password"`}},
		{[]string{"--namespace", "vmlet", "--metrics-authentication", "token"}, []string{"--metrics-authentication: token needs tls"}},
		{[]string{"--namespace", "vmlet", "--metrics-tls-cert", "a"}, []string{"--metrics-tls: it needs both", `--metrics-tls-cert: "a" is not an absolute`}},
	} {
		err := parse(t, c.args...).Check()
		if (err != nil) != (len(c.want) > 0) {
			t.Errorf("%q: %v, want a fault: %v", c.args, err, len(c.want) > 0)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: the faults are\n%v\nwant %q among them", c.args, err, want)
			}
		}
	}
}

// TestConfigurationNamespace: it is vmlet's own unless another one is named.
func TestConfigurationNamespace(t *testing.T) {
	for want, more := range map[string][]string{"vmlet": nil, "kubevirt": {"--configuration-namespace", "kubevirt"}} {
		o := parse(t, append([]string{"--namespace", "vmlet"}, more...)...)
		if err := o.Check(); err != nil || o.Configuration != want {
			t.Errorf("%q: namespace %q (%v), want %q", more, o.Configuration, err, want)
		}
	}
}

func TestLogFlags(t *testing.T) {
	for _, c := range []struct {
		args  []string
		fault string
	}{
		{nil, ""},
		{[]string{"--log-level", "debug", "--log-format", "json"}, ""},
		{[]string{"--log-level", "loud"}, `--log-level: "loud" is none of debug, info, warn and error`},
		{[]string{"--log-format", "xml"}, `--log-format: "xml" is neither text nor json`},
	} {
		var out bytes.Buffer
		log, err := parse(t, c.args...).NewLog(&out)
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%q: %v", c.args, err)
		case c.fault != "" && (err == nil || err.Error() != c.fault):
			t.Errorf("%q: %v, want %s", c.args, err, c.fault)
		case err == nil:
			log.Info("heard")
			if !strings.Contains(out.String(), "heard") {
				t.Errorf("%q: the log has %q", c.args, out.String())
			}
		}
	}
}

func TestKubeconfigThatIsNotThere(t *testing.T) {
	if _, err := parse(t, "--kubeconfig", "/does/not/exist").Connect("test"); err == nil || !strings.HasPrefix(err.Error(), "--kubeconfig: ") {
		t.Errorf("%v, want the flag first", err)
	}
}

func TestNamesOfDeploy(t *testing.T) {
	got := parse(t).Names
	if got.Agent != "vmlet-agent" || got.Controller != "vmlet-controller" || got.API != "vmlet-api" {
		t.Errorf("the names are %+v, want those of deploy/", got)
	}
}
