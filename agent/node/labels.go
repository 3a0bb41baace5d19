package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vmlet/vmlet/capabilities/labels"
	"github.com/vmlet/vmlet/internal/atomicfile"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// LabelsName is the file in the state folder that has the labels of last time.
const LabelsName = "labels.json"

// maxLabels bounds that file, in bytes: a node's labels have some 20,000.
const maxLabels = 1 << 20

// LabelFile keeps the labels, so that a fact which can't be asked now leaves
// those that depend on it as they were, across the agent's own end too.
type LabelFile struct {
	path string
	mu   *sync.Mutex
}

func newLabelFile(stateDir string) LabelFile {
	return LabelFile{filepath.Join(stateDir, LabelsName), new(sync.Mutex)}
}

// Of returns the labels that follow from a document, and keeps them. Labels of
// earlier that can't be read are as good as none only if the file is damaged:
// that it can't be read now must not cost them.
func (f LabelFile) Of(doc *capabilitiesv1.Capabilities) (*capabilitiesv1.GetNodeLabelsResponse, error) {
	return f.After(doc, nil)
}

// After is Of, on a node that carries labels that the file may not know:
// it may have been lost.
func (f LabelFile) After(doc *capabilitiesv1.Capabilities, carried map[string]string) (*capabilitiesv1.GetNodeLabelsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set, err := labels.Of(doc, "")
	if err != nil {
		return nil, err
	}
	previous, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("the labels of earlier: %w", err)
	}
	earlier := maps.Clone(carried)
	if earlier == nil {
		earlier = map[string]string{}
	}
	maps.Copy(earlier, previous)
	merged, kept := labels.Merge(earlier, set)
	if !maps.Equal(previous, merged) {
		content, err := json.MarshalIndent(merged, "", "  ")
		if err != nil {
			return nil, err
		}
		if err := atomicfile.ReplaceDurably(f.path, append(content, '\n'), 0o600); err != nil {
			return nil, err
		}
	}
	return &capabilitiesv1.GetNodeLabelsResponse{Labels: merged, Unknown: unknownOf(kept)}, nil
}

func (f LabelFile) read() (map[string]string, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxLabels))
	if err != nil {
		return nil, err
	}
	var previous map[string]string
	if json.Unmarshal(content, &previous) != nil {
		return nil, nil // damaged
	}
	return previous, nil
}

// unknownOf are the facts, each once, on which labels of earlier hang.
func unknownOf(kept []labels.Kept) []*capabilitiesv1.UnknownFact {
	var facts []*capabilitiesv1.UnknownFact
	for _, k := range kept {
		known := func(u *capabilitiesv1.UnknownFact) bool { return u.GetFact() == k.Fact && u.GetReason() == k.Reason }
		if !slices.ContainsFunc(facts, known) {
			facts = append(facts, &capabilitiesv1.UnknownFact{Fact: k.Fact, Reason: k.Reason})
		}
	}
	return facts
}
