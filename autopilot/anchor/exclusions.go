package anchor

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Bounds of the annotation Disabled.
const (
	maxDisabled = 64 << 10 // bytes
	maxRules    = 256
)

// Exclusion is a rule of the annotation Disabled. Name and Namespace may have wildcards; without a
// Namespace it is about objects of every namespace, and of none.
type Exclusion struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// Matches reports whether the rule is about an object.
func (e Exclusion) Matches(kind, namespace, name string) bool {
	return e.Kind == kind && match(e.Name, name) && (e.Namespace == "" || match(e.Namespace, namespace))
}

func match(pattern, text string) bool {
	is, err := path.Match(pattern, text)
	return err == nil && is
}

func (e Exclusion) String() string {
	if e.Namespace == "" {
		return e.Kind + "/" + e.Name
	}
	return e.Kind + "/" + e.Namespace + "/" + e.Name
}

// parseExclusions reads the annotation Disabled. Rules without a fault are returned beside the
// faults of the others; if the list can't be read there are none.
func parseExclusions(text string) ([]Exclusion, error) {
	if len(text) > maxDisabled {
		return nil, fmt.Errorf("%s has more than %d bytes: no rule counts", Disabled, maxDisabled)
	}
	if strings.Contains(text, "&") {
		return nil, fmt.Errorf("%s has a &: no rule counts, as aliases of YAML can make a long text of a short one", Disabled)
	}
	var all []Exclusion
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("%s is no YAML list of kind, name and namespace: no rule counts: %w", Disabled, err)
	}
	if len(all) > maxRules {
		return nil, fmt.Errorf("%s has more than %d rules: none counts", Disabled, maxRules)
	}
	var faults []error
	var good []Exclusion
	for i, e := range all {
		_, badName := path.Match(e.Name, "")
		_, badNamespace := path.Match(e.Namespace, "")
		switch {
		case e.Kind == "" || e.Name == "":
			faults = append(faults, fmt.Errorf("%s[%d]: kind and name are required", Disabled, i))
		case badName != nil || badNamespace != nil:
			faults = append(faults, fmt.Errorf("%s[%d]: %s is no pattern", Disabled, i, e))
		default:
			good = append(good, e)
		}
	}
	return good, errors.Join(faults...)
}
