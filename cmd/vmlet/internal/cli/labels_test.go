package cli

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// nodeDocument is one of the documents that the labels are tested with.
func nodeDocument(t *testing.T, name string) *capabilitiesv1.Capabilities {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "capabilities", "labels", "testdata", name+".doc.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc := new(capabilitiesv1.Capabilities)
	if err := protojson.Unmarshal(raw, doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// putLabels runs the command but for asking the machine.
func putLabels(t *testing.T, doc *capabilitiesv1.Capabilities, f labelsFlags, format output.Format) (stdout, stderr string, err error) {
	t.Helper()
	var out, notes strings.Builder
	a := &nodeCommands{newApp(Env{Stdout: &out, Stderr: &notes}).agent}
	previous, err := f.before()
	if err != nil {
		return "", "", err
	}
	err = a.putLabels(doc, &f, previous, format)
	return out.String(), notes.String(), err
}

func TestLabelFormats(t *testing.T) {
	doc := nodeDocument(t, "amd")
	asJSON, _, err := putLabels(t, doc, labelsFlags{}, output.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]string
	if err := json.Unmarshal([]byte(asJSON), &want); err != nil || want["kubevirt.io/sev-snp"] != "true" || want["node.vmlet.io/hypervisor"] != "kvm" {
		t.Fatalf("%v: %s", err, asJSON)
	}
	if text, _, err := putLabels(t, doc, labelsFlags{hypervisor: "auto"}, output.YAML); err != nil || yaml.Unmarshal([]byte(text), &got) != nil || !maps.Equal(got, want) {
		t.Errorf("yaml: %v, %s", err, text)
	}
	text, _, err := putLabels(t, doc, labelsFlags{}, formatText)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if err != nil || len(lines) != len(want)+1 || !strings.HasPrefix(lines[0], "LABEL ") {
		t.Errorf("text: %v, %s", err, text)
	}
	nfd, _, err := putLabels(t, doc, labelsFlags{}, formatNFD)
	if err != nil || strings.Count(nfd, "\n") != len(want) {
		t.Errorf("nfd: %v, %s", err, nfd)
	}
	for key, value := range want {
		if !strings.Contains("\n"+nfd, "\n"+key+"="+value+"\n") {
			t.Errorf("nfd has no %s=%s", key, value)
		}
	}
	if _, _, err := putLabels(t, doc, labelsFlags{hypervisor: "xen"}, output.JSON); err == nil || !strings.Contains(err.Error(), "emulation, kvm") {
		t.Errorf("another hypervisor: %v", err)
	}
}

// TestLabelsAsBefore: what can't be asked now is as the file has it.
func TestLabelsAsBefore(t *testing.T) {
	whole := nodeDocument(t, "intel")
	full, _, err := putLabels(t, whole, labelsFlags{}, output.JSON)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	previous, file := filepath.Join(dir, "labels.json"), filepath.Join(dir, "vmlet")
	if err := os.WriteFile(previous, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := putLabels(t, whole, labelsFlags{write: file}, formatText); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	part := nodeDocument(t, "intel")
	part.Host.KsmEnabled, part.Hypervisors[0].Tsc = nil, nil
	part.Unknown = []*capabilitiesv1.UnknownFact{{Fact: "host.ksm", Reason: "EIO"}, {Fact: "hypervisors.kvm.tsc", Reason: "EBUSY"}}

	got, notes, err := putLabels(t, part, labelsFlags{previous: previous}, output.JSON)
	if err != nil || got != full {
		t.Errorf("%v, got %s", err, got)
	}
	for _, want := range []string{
		"could not be asked: host.ksm: EIO\n",
		"as before, since host.ksm could not be asked: kubevirt.io/ksm-enabled\n",
		"as before, since hypervisors.kvm.tsc could not be asked: cpu-timer.node.kubevirt.io/tsc-frequency and 1 more\n",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in %s", want, notes)
		}
	}
	if out, _, err := putLabels(t, part, labelsFlags{write: file}, formatText); err != nil || out != "" {
		t.Errorf("%v, %q", err, out)
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(written) {
		t.Errorf("%v: %s", err, again)
	}
	if got, _, err := putLabels(t, part, labelsFlags{}, output.JSON); err != nil || strings.Contains(got, "ksm-enabled") {
		t.Errorf("with nothing before: %v, %s", err, got)
	}
}

func TestLabelsBadFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign, link, good := file("passwd", "root:x:0:0:root:/root:/bin/sh\n"), filepath.Join(dir, "link"), file("good", "{}")
	if err := os.Symlink(foreign, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		flags labelsFlags
		want  string
	}{
		{labelsFlags{previous: filepath.Join(dir, "none")}, "no such file"},
		{labelsFlags{previous: dir}, "is a directory"},
		{labelsFlags{previous: file("list", "[]")}, "one object of key to value"},
		{labelsFlags{previous: file("numbers", `{"a":1}`)}, "one object of key to value"},
		{labelsFlags{previous: file("large", strings.Repeat(" ", maxLabelsFile+1))}, "more than"},
		{labelsFlags{write: filepath.Join(dir, "none", "vmlet")}, "mkdir -p"},
		{labelsFlags{write: dir}, "not a file"},
		{labelsFlags{write: foreign}, "holds something other than labels"},
		{labelsFlags{write: foreign, previous: good}, "holds something other than labels"},
		{labelsFlags{write: link}, "is a link"},
	} {
		out, _, err := putLabels(t, nodeDocument(t, "amd"), test.flags, output.JSON)
		if err == nil || out != "" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, %q; want %s", test.flags, err, out, test.want)
		}
	}
}

// TestLabelsOfThisMachine asks it, and again. On a busy machine there may be no answer in
// time, which is said: the labels of it are then as they were.
func TestLabelsOfThisMachine(t *testing.T) {
	n := newFakeNode(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(config, []byte("stateDir: "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := n.run(t, "labels", "-o", "json", "--config", config)
	var got map[string]string
	if err := json.Unmarshal([]byte(first.stdout), &got); err != nil || first.code != 0 {
		t.Fatalf("%v: %+v", err, first)
	}
	previous := filepath.Join(dir, "labels.json")
	if err := os.WriteFile(previous, []byte(first.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	second := n.run(t, "labels", "-o", "json", "--config", config, "--previous", previous)
	switch complete := !strings.Contains(first.stderr, "could not be asked"); {
	case second.code != 0, complete && first.stdout != second.stdout:
		t.Fatalf("first %+v, second %+v", first, second)
	case !complete:
		t.Logf("not compared, as the machine was busy: %s", first.stderr)
	}
	if got["node.vmlet.io/hypervisor"] == "" {
		t.Logf("no hypervisor here: %s", first.stderr)
	}
	if calls := n.takeCalls(); len(calls) != 0 {
		t.Errorf("the agent was asked: %q", calls)
	}
	if r := n.run(t, "labels", "-o", "json", "--write", filepath.Join(dir, "x")); r.code != exitUsage {
		t.Errorf("-o json with --write: %+v", r)
	}
}

// TestLabelsWhenQEMUFails: a QEMU that is there and doesn't answer costs no
// label that the node has.
func TestLabelsWhenQEMUFails(t *testing.T) {
	n := newFakeNode(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"qemu":          "#!/bin/sh\nexit 1\n",
		"agent.yaml":    "stateDir: " + dir + "\nqemu: {binary: " + dir + "/qemu}\n",
		"previous.json": `{"machine-type.node.kubevirt.io/q35": "true", "vmm.node.vmlet.io/qemu": "7.2.22", "vmm.node.vmlet.io/other": "1", "kubernetes.io/os": "linux"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r := n.run(t, "labels", "-o", "json", "--config", filepath.Join(dir, "agent.yaml"), "--previous", filepath.Join(dir, "previous.json"))
	var got map[string]string
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	if got["machine-type.node.kubevirt.io/q35"] != "true" || got["vmm.node.vmlet.io/qemu"] != "7.2.22" {
		t.Errorf("lost: %q", got)
	}
	for _, gone := range []string{"vmm.node.vmlet.io/other", "kubernetes.io/os"} {
		if _, there := got[gone]; there {
			t.Errorf("%s is there", gone)
		}
	}
	if !strings.Contains(r.stderr, "could not be asked: vmms.qemu: ") || !strings.Contains(r.stderr, "as before, since vmms.qemu could not be asked: ") {
		t.Errorf("notes: %s", r.stderr)
	}
}
