package tuning

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const swap = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n"

// newNode is a node with an administrator's own drop-in and no huge pages.
func newNode(t *testing.T) Node {
	t.Helper()
	dir := t.TempDir()
	n := Node{filepath.Join(dir, "wanted"), filepath.Join(dir, "kubelet.conf.d"), filepath.Join(dir, "hugepages")}
	write(t, filepath.Join(n.Kubelet, "99-mine.conf"), "mine")
	write(t, filepath.Join(n.HugePages, "hugepages-2048kB/nr_hugepages"), "16\n")
	return n
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// files are those of a folder, by name.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(content)
	}
	return all
}

// Drop-ins come, change and go with what is wanted; the administrator's own stay.
func TestDropIns(t *testing.T) {
	n := newNode(t)
	for _, step := range []struct {
		name    string
		wanted  string // of 90-vmlet-swap.conf; "": none
		changed bool
	}{
		{"nothing is wanted", "", false},
		{"wanted", swap, true},
		{"still wanted", swap, false},
		{"otherwise", swap + "maxPods: 500\n", true},
		{"no more", "", true},
	} {
		want := map[string]string{"99-mine.conf": "mine"}
		file := filepath.Join(n.Wanted, "90-vmlet-swap.conf")
		if step.wanted == "" {
			_ = os.Remove(file) // need not be there
		} else {
			write(t, file, step.wanted)
			want["90-vmlet-swap.conf"] = step.wanted
		}
		changed, err := n.Apply()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if step.changed != (len(changed) == 1) {
			t.Errorf("%s: changed %q, want a change: %v", step.name, changed, step.changed)
		}
		if got := files(t, n.Kubelet); !maps.Equal(got, want) {
			t.Errorf("%s: the kubelet has %q, want %q", step.name, got, want)
		}
	}
}

// With one that would keep the kubelet from starting, none is written, and none removed.
func TestBrokenDropIns(t *testing.T) {
	for name, content := range map[string]string{
		"no YAML": "a: [", "another kind": "apiVersion: v1\nkind: Pod\n", "empty": "", "too long": swap + strings.Repeat("#", maxFile),
	} {
		n := newNode(t)
		write(t, filepath.Join(n.Kubelet, "90-vmlet-old.conf"), swap)
		write(t, filepath.Join(n.Wanted, "90-vmlet-swap.conf"), swap)
		write(t, filepath.Join(n.Wanted, "90-vmlet-bad.conf"), content)
		before := files(t, n.Kubelet)
		if changed, err := n.Apply(); err == nil || !strings.Contains(err.Error(), "90-vmlet-bad.conf: ") || len(changed) > 0 {
			t.Errorf("%s: changed %q, error %v", name, changed, err)
		}
		if got := files(t, n.Kubelet); !maps.Equal(got, before) {
			t.Errorf("%s: the kubelet has %q, want %q", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(before)))
		}
	}
}

// Names that are not of a drop-in's form are written nowhere.
func TestOtherNames(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"10-vmlet-x.conf", "90-vmlet-X.conf", "90-vmlet-x.yaml", "99-mine.conf", "..data"} {
		write(t, filepath.Join(n.Wanted, name), swap)
	}
	if changed, err := n.Apply(); err != nil || len(changed) > 0 {
		t.Errorf("changed %q, error %v", changed, err)
	}
}

// Pages are added, and never taken back.
func TestHugePages(t *testing.T) {
	for name, c := range map[string]struct{ wanted, want, err string }{
		"more":      {"64\n", "64", ""},
		"fewer":     {"8", "16\n", ""},
		"as many":   {"16", "16\n", ""},
		"no number": {"many", "16\n", "is no number"},
		"negative":  {"-1", "16\n", "is no number"},
		"too many":  {"16777217", "16\n", "is no number"},
	} {
		n := newNode(t)
		write(t, filepath.Join(n.Wanted, HugePages), c.wanted)
		_, err := n.Apply()
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if got := files(t, filepath.Join(n.HugePages, "hugepages-2048kB"))["nr_hugepages"]; got != c.want {
			t.Errorf("%s: %q pages, want %q", name, got, c.want)
		}
	}
}

// TestDropInFields: what a drop-in may say is a list; a field beside it is named, and nothing is written.
func TestDropInFields(t *testing.T) {
	for _, c := range []struct{ line, field string }{
		{"maxPods: 500\nnodeStatusMaxImages: -1\nmemorySwap: {swapBehavior: LimitedSwap}", ""},
		{"evictionHard: {memory.available: 1Gi}", ""},
		{"staticPodURL: http://192.0.2.1/pods", "staticPodURL"},
		{"staticPodPath: /tmp", "staticPodPath"},
		{"authentication: {anonymous: {enabled: true}}", "authentication"},
		{"authorization: {mode: AlwaysAllow}", "authorization"},
		{"allowedUnsafeSysctls: [kernel.*]", "allowedUnsafeSysctls"},
		{"containerRuntimeEndpoint: unix:///tmp/mine", "containerRuntimeEndpoint"},
		{"featureGates: {KubeletFineGrainedAuthz: false}", "featureGates"},
		{"StaticPodURL: http://192.0.2.1/pods", "StaticPodURL"},
		{"a: &a {staticPodPath: /tmp}\n<<: *a", "staticPodPath"},
		{"---\nstaticPodPath: /tmp", "several documents"},
		{"failSwapOn: true", "already set"},
		{"providerID: x\nport: 1", "port"},
	} {
		n := newNode(t)
		write(t, filepath.Join(n.Wanted, "90-vmlet-swap.conf"), swap+c.line+"\n")
		_, err := n.Apply()
		if (err == nil) != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%q: error %v, want %q in it", c.line, err, c.field)
		}
		if _, written := files(t, n.Kubelet)["90-vmlet-swap.conf"]; written != (c.field == "") {
			t.Errorf("%q: written %v", c.line, written)
		}
	}
}
