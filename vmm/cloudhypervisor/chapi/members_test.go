package chapi_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

// compareMembers wants each member of sent, as JSON, in got with the same value. Got
// may have more.
func compareMembers(t *testing.T, path string, sent, got any) {
	t.Helper()
	compareTrees(t, path, tree(t, sent), tree(t, got))
}

func tree(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func compareTrees(t *testing.T, path string, sent, got any) {
	t.Helper()
	switch sent := sent.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for name, value := range sent {
			member, there := object[name]
			if !there {
				// The two that v53 answers to by a new name.
				member, there = object["system_"+name]
			}
			if !there {
				t.Errorf("%s.%s is lost", path, name)
				continue
			}
			compareTrees(t, path+"."+name, value, member)
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(sent) {
			t.Errorf("%s has %d items, want %d", path, len(list), len(sent))
			return
		}
		for i := range sent {
			compareTrees(t, fmt.Sprintf("%s[%d]", path, i), sent[i], list[i])
		}
	default:
		if !reflect.DeepEqual(sent, got) {
			t.Errorf("%s is %v, sent as %v", path, got, sent)
		}
	}
}
