// Package convert rewrites manifests of VirtualMachinePools as their design has them into those of the API
// that the cluster serves. It is pure. Start reading at Manifests.
package convert

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// most is the most bytes that a document may have: the API server takes 3 MiB.
const most = 3 << 20

// Manifests reads YAML documents and writes each one again, pools in the cluster's API and all others as they
// are. Comments in pools are lost. An error names the document by its number and its field.
func Manifests(from io.Reader, to io.Writer) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(from))
	first := true
	for number := 1; ; number++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
		if len(text) > most {
			return fmt.Errorf("document %d: it has %d bytes, and the API server takes %d", number, len(text), most)
		}
		for bytes.HasPrefix(text, []byte("---\n")) { // the reader leaves those of empty documents
			text = text[len("---\n"):]
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if text, err = document(text); err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
		separator := "---\n"
		if first {
			separator = ""
		}
		first = false
		if _, err := fmt.Fprintf(to, "%s%s\n", separator, strings.TrimSuffix(string(text), "\n")); err != nil {
			return err
		}
	}
}

func document(text []byte) ([]byte, error) {
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	group, _, _ := strings.Cut(word(object, "apiVersion"), "/")
	if word(object, "kind") != poolv1.Kind || group != "kubevirt.io" {
		return text, nil
	}
	object["apiVersion"] = poolv1.Group + "/" + poolv1.Version
	spec, is := object["spec"].(map[string]any)
	if !is {
		return nil, errors.New("spec: it has to be set")
	}
	for from, to := range map[string]string{"template": "virtualMachineTemplate", "replica": "replicas"} {
		if err := rename(spec, from, to); err != nil {
			return nil, err
		}
	}
	for _, strategy := range []string{"scaleInStrategy", "updateStrategy"} {
		if err := policies(spec, strategy); err != nil {
			return nil, err
		}
	}
	return yaml.Marshal(object)
}

func word(object map[string]any, key string) string {
	text, _ := object[key].(string)
	return text
}

func rename(spec map[string]any, from, to string) error {
	value, has := spec[from]
	if !has {
		return nil
	}
	if _, both := spec[to]; both {
		return fmt.Errorf("spec.%s: spec.%s is set, too, which is the same: leave one of them out", from, to)
	}
	delete(spec, from)
	spec[to] = value
	return nil
}

// policies rewrites the ordered policies of a strategy: the design names labels, and the API selects by them.
func policies(spec map[string]any, strategy string) error {
	below := func(of map[string]any, key string) map[string]any { m, _ := of[key].(map[string]any); return m }
	selection := below(below(below(spec, strategy), "proactive"), "selectionPolicy")
	all, _ := selection["orderedPolicies"].([]any)
	for i, one := range all {
		at := fmt.Sprintf("spec.%s.proactive.selectionPolicy.orderedPolicies[%d]", strategy, i)
		names, is := labels(one)
		if !is {
			if _, object := one.(map[string]any); object {
				continue // it is the API's already
			}
			return fmt.Errorf("%s: want labelSelector, with labels", at)
		}
		var exist []any
		for _, name := range names {
			exist = append(exist, map[string]any{"key": name, "operator": "Exists"})
		}
		all[i] = map[string]any{"labelSelector": map[string]any{"matchExpressions": exist}}
	}
	return nil
}

// labels are the names of labels in an entry that has no selector: "labelSelector - NAME", which is how YAML reads
// a list below an entry without a colon, or labelSelector: [NAME].
func labels(entry any) (names []string, is bool) {
	switch e := entry.(type) {
	case string:
		kind, rest, _ := strings.Cut(e, " ")
		for _, name := range strings.Fields(rest) {
			if name != "-" {
				names = append(names, name)
			}
		}
		return names, kind == "labelSelector" && len(names) > 0
	case map[string]any:
		list, _ := e["labelSelector"].([]any)
		for _, name := range list {
			text, word := name.(string)
			if !word {
				return nil, false
			}
			names = append(names, text)
		}
		return names, len(names) > 0
	}
	return nil, false
}
