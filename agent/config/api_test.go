package config

import (
	"os"
	"strings"
	"testing"
)

// In a pod the API is on the network; elsewhere only where that is asked for.
func TestAPIDefaults(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // so that it is restored
	os.Unsetenv("KUBERNETES_SERVICE_HOST")
	for name, c := range map[string]struct {
		pod       bool
		text      string
		want, err string
	}{
		"alone":                    {},
		"kubeconfig":               {text: "kubernetes: {kubeconfig: /etc/k}"},
		"kubeconfig, asked for":    {text: "{kubernetes: {kubeconfig: /etc/k}, api: {listen: '10.0.0.1:1'}}", want: "10.0.0.1:1"},
		"pod":                      {pod: true, want: ":8083"},
		"pod, off":                 {pod: true, text: "api: {listen: off}"},
		"pod, 0":                   {pod: true, text: "api: {listen: '0'}"},
		"pod without API server":   {pod: true, text: "kubernetes: {enabled: false}"},
		"alone, asked for":         {text: "api: {listen: ':1'}", err: "api.listen: its certificate is from the API server"},
		"no address":               {pod: true, text: "api: {listen: somewhere}", err: `api.listen: "somewhere" is no address`},
		"a name, which may change": {pod: true, text: "api: {listen: 'host:1'}", err: "is no address"},
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
			if got.API.Listen != c.want {
				t.Errorf("listens at %q, want %q", got.API.Listen, c.want)
			}
		})
	}
}
