package endpoints

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// scrapers are one that may get metrics and one that may not.
const scrapers = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: guest, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scrape}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scrape}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scrape}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
`

// TestTokensOfRealAPIServer has a real one say who may have the metrics.
func TestTokensOfRealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, 4*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.Apply(ctx, scrapers); err != nil {
		t.Fatal(err)
	}
	token := func(account string) string {
		t.Helper()
		token, err := c.Token(ctx, "default", account, "")
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	access, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	h := Authenticated(says("metrics"), reviewsBy(t, access), quiet())
	prometheus := token("prometheus")
	for _, s := range []struct {
		who, authorization string
		want               int
	}{
		{"one who may", "Bearer " + prometheus, 200},
		{"one who may not", "Bearer " + token("guest"), 403},
		{"a token that was changed", "Bearer " + prometheus[:len(prometheus)-5] + "AAAAA", 401},
		{"nobody", "Bearer x", 401},
	} {
		if got := ask(h, s.authorization); got != s.want {
			t.Errorf("%s gets %d, want %d", s.who, got, s.want)
		}
	}
	// Its answer is believed for a while, and others' must wait.
	if err := c.StopComponent(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if got := ask(h, "Bearer "+prometheus); got != 200 {
		t.Errorf("without an API server one who might a moment ago gets %d", got)
	}
	if got := ask(h, "Bearer y"); got != 503 {
		t.Errorf("without an API server nobody gets %d", got)
	}
}
