package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/agent/metrics"
	autopilotmetrics "github.com/vmlet/vmlet/autopilot/metrics"
	clustermetrics "github.com/vmlet/vmlet/cluster/metrics"
	"github.com/vmlet/vmlet/test/guest"
)

// monitoring has alerts and dashboards, for deploy/monitoring and for the autopilot.
const monitoring = "../autopilot/catalog/assets/active/monitoring/manifests/"

// rule is an alert of a PrometheusRule.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ruleGroups is the part of a PrometheusRule that Prometheus itself reads.
type ruleGroups struct {
	Groups []struct {
		Name  string  `json:"name"`
		Rules []*rule `json:"rules"`
	} `json:"groups"`
}

func (g ruleGroups) all() []*rule {
	var rules []*rule
	for i := range g.Groups {
		rules = append(rules, g.Groups[i].Rules...)
	}
	return rules
}

// prometheusRules returns the content of the PrometheusRules: vmlet's, and the autopilot's.
func prometheusRules(t *testing.T) ruleGroups {
	t.Helper()
	var groups ruleGroups
	for _, file := range []string{"alerts.yaml", "autopilot-alerts.yaml"} {
		content, err := os.ReadFile(monitoring + file)
		if err != nil {
			t.Fatal(err)
		}
		var object struct{ Spec json.RawMessage }
		if err := yaml.Unmarshal(content, &object); err != nil {
			t.Fatal(err)
		}
		var own ruleGroups
		if err := yaml.UnmarshalStrict(object.Spec, &own); err != nil {
			t.Fatal(err)
		}
		if len(own.all()) == 0 {
			t.Fatalf("%s has no alerts", file)
		}
		groups.Groups = append(groups.Groups, own.Groups...)
	}
	return groups
}

func writeYAML(t *testing.T, file string, content any) {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each alert sends whoever it wakes to a page that is there and says all of it.
func TestRunbooks(t *testing.T) {
	operations, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := make(map[string]bool)
	for _, r := range prometheusRules(t).all() {
		page := r.Alert + ".md"
		pages[page] = true
		if !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/runbooks/"+page) {
			t.Errorf("%s: the runbook is %s", r.Alert, r.Annotations["runbook_url"])
		}
		text, err := os.ReadFile(filepath.Join("../docs/runbooks", page))
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
			continue
		}
		for _, heading := range []string{"# " + r.Alert, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"} {
			if !strings.Contains(string(text), heading+"\n") {
				t.Errorf("%s has no %q", page, heading)
			}
		}
		if !strings.Contains(string(operations), "(runbooks/"+page+")") {
			t.Errorf("docs/operations.md has no link to %s", page)
		}
		if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: want a severity, warning or critical, a summary and a description", r.Alert)
		}
	}
	entries, err := os.ReadDir("../docs/runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !pages[e.Name()] {
			t.Errorf("%s is the runbook of no alert", e.Name())
		}
	}
}

// Links between the pages of docs, and headings in them, are there.
func TestLinksOfRunbooks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^):#]+)`)
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../docs/operations.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), found[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// expressions are what alerts and dashboard ask Prometheus, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, r := range prometheusRules(t).all() {
		all["alert "+r.Alert] = r.Expr
	}
	for _, file := range []string{"vmlet.json", "autopilot.json"} {
		addDashboard(t, all, file)
	}
	return all
}

// addDashboard adds what a dashboard asks.
func addDashboard(t *testing.T, all map[string]string, file string) {
	t.Helper()
	content, err := os.ReadFile(monitoring + file)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, v := range dashboard.Templating.List {
		all["variable "+v.Name] = v.Definition
	}
	ids := make(map[int]bool)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %q: want an id of its own and something to show", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all["panel "+p.Title] += " " + target.Expr
		}
	}
}

// Alerts and dashboard name metrics, labels and states that there are.
func TestExpressionsNameMetricsThatThereAre(t *testing.T) {
	known := make(map[string][]string)
	for _, m := range metrics.New(t.Context(), metrics.Sources{}).All() {
		known[m.Name] = m.Labels
	}
	for _, m := range clustermetrics.All() {
		known[m.Name] = m.Labels
	}
	for _, m := range autopilotmetrics.All() {
		known[m.Name] = m.Labels
		if m.Type == "histogram" {
			known[m.Name+"_bucket"] = append(slices.Clone(m.Labels), "le")
		}
	}
	// Of Prometheus itself, of client_golang's collectors and of kube-state-metrics.
	for _, name := range []string{"up", "process_resident_memory_bytes", "kube_daemonset_status_desired_number_scheduled", "kube_deployment_spec_replicas"} {
		known[name] = []string{"namespace", "daemonset", "deployment"}
	}
	known["leader_election_master_status"] = []string{"name"} // controller-runtime's
	named := regexp.MustCompile(`\b((?:vmlet|kubevirt|kube|process|go|up|leader_election)(?:_[a-z0-9_]+)?)\b(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`([a-z_]+)\s*[=!]`)
	for where, expr := range expressions(t) {
		for _, found := range named.FindAllStringSubmatch(withoutText(expr), -1) {
			labels, there := known[found[1]]
			if !there {
				t.Errorf("%s: there is no metric %s", where, found[1])
			}
			// Those that Prometheus adds to all of a pod's.
			labels = append(slices.Clone(labels), "job", "node", "pod", "instance")
			for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: %s has no label %s", where, found[1], m[1])
				}
			}
		}
	}
}

// withoutText empties the strings of an expression: the values of labels.
func withoutText(expr string) string {
	return regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`)
}

// Prometheus takes the rules, and they fire when they should and no sooner.
func TestAlertsInPrometheus(t *testing.T) {
	promtool, err := guest.Cached("promtool")
	if err != nil {
		t.Skip(err)
	}
	groups := prometheusRules(t)
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		writeYAML(t, filepath.Join(dir, "rules.yaml"), groups)
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", "--lint-fatal", "rules.yaml")
	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tests.yaml"), tests, 0o644); err != nil {
		t.Fatal(err)
	}
	// The tests are of when, not of the words.
	for _, r := range groups.all() {
		r.Annotations = nil
	}
	run("test", "rules", "tests.yaml")
	for _, r := range groups.all() {
		if n := strings.Count(string(tests), "alertname: "+r.Alert+"\n"); n < 2 {
			t.Errorf("testdata/alerts.yaml has %s %d times: want it to fire, and not to", r.Alert, n)
		}
	}
}
