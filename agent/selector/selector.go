// Package selector reads Kubernetes' equality-based label selectors:
// "a=b,c==d,e!=f,g,!h".
package selector

import (
	"fmt"
	"strings"
)

// Selector says which labels are wanted. The zero Selector takes everything.
type Selector struct {
	wants []want
}

type want struct {
	key, value string
	// hasValue: the value counts, else only whether the key is there.
	hasValue bool
	not      bool
}

// Parse reads a selector. Set-based requirements ("a in (b, c)") are refused.
func Parse(s string) (Selector, error) {
	var sel Selector
	if strings.TrimSpace(s) == "" {
		return sel, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		w, err := parseOne(strings.TrimSpace(part))
		if err != nil {
			return Selector{}, err
		}
		sel.wants = append(sel.wants, w)
	}
	return sel, nil
}

func parseOne(s string) (want, error) {
	var w want
	switch key, value, found := strings.Cut(s, "="); {
	case found && strings.HasSuffix(key, "!"):
		w = want{strings.TrimSuffix(key, "!"), value, true, true}
	case found:
		w = want{key, strings.TrimPrefix(value, "="), true, false}
	default:
		rest, not := strings.CutPrefix(s, "!")
		w = want{key: rest, not: not}
	}
	w.key, w.value = strings.TrimSpace(w.key), strings.TrimSpace(w.value)
	if w.key == "" || strings.ContainsAny(w.key, " !()=") || strings.ContainsAny(w.value, " !()=") {
		return want{}, fmt.Errorf("%q is none of key=value, key!=value, key, !key", s)
	}
	return w, nil
}

// Matches says whether the labels are as wanted. As in Kubernetes, key!=value
// also takes labels that don't have the key.
func (s Selector) Matches(labels map[string]string) bool {
	for _, w := range s.wants {
		value, has := labels[w.key]
		matches := has && (!w.hasValue || value == w.value)
		if matches == w.not {
			return false
		}
	}
	return true
}
