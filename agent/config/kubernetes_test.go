package config

import (
	"os"
	"strings"
	"testing"
)

// In a pod, and with a kubeconfig, labels go to the Node; elsewhere nobody is asked.
func TestKubernetesDefaults(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // so that it is restored
	os.Unsetenv("KUBERNETES_SERVICE_HOST")
	for name, c := range map[string]struct {
		pod          bool
		text, labels string
		enabled      bool
		err          string
	}{
		"alone":             {labels: LabelsOff},
		"pod":               {pod: true, labels: LabelsApply, enabled: true},
		"pod, switched off": {pod: true, text: "kubernetes: {enabled: false}", labels: LabelsOff},
		"kubeconfig":        {text: "kubernetes: {kubeconfig: /etc/k}", labels: LabelsApply, enabled: true},
		"nfd alone":         {text: "kubernetes: {labels: nfd}", labels: LabelsNFD},
		"apply to nobody":   {text: "kubernetes: {labels: apply}", err: "kubernetes.labels: apply needs the API server"},
		"relative path":     {text: "kubernetes: {kubeconfig: etc/k}", err: `kubernetes.kubeconfig: "etc/k" is not an absolute, clean path`},
		"path not clean":    {text: "kubernetes: {kubeconfig: /etc/../k}", err: `kubernetes.kubeconfig: "/etc/../k" is not an absolute, clean path`},
		"all faults":        {text: "kubernetes: {labels: maybe, kubeconfig: k, nfdFile: /f/.x, node: A_B}", err: "kubernetes.node"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.pod {
				t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
			}
			got, err := load(t, c.text)
			if err == nil {
				got, err = got.Complete()
			}
			if err == nil {
				err = got.Validate()
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if k := got.Kubernetes; k.Labels != c.labels || *k.Enabled != c.enabled || !*k.Heartbeat || k.NFDFile != DefaultNFDFile {
				t.Errorf("%+v", k)
			}
		})
	}
}

// Outside Kubernetes nothing is offered unless that is asked for.
func TestDevicesAreOfferedInPods(t *testing.T) {
	enabled := func(text string) bool {
		c, err := load(t, text)
		if err == nil {
			c, err = c.Complete()
		}
		if err != nil {
			t.Fatal(err)
		}
		return *c.DevicePlugins.Enabled
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // so that it is restored
	os.Unsetenv("KUBERNETES_SERVICE_HOST")
	if enabled("") || !enabled("devicePlugins: {enabled: true}") {
		t.Error("outside Kubernetes")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	if !enabled("") || enabled("devicePlugins: {enabled: false}") {
		t.Error("in a pod")
	}
}
