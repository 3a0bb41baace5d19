package main

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/vmlet/vmlet/contract"
)

// TestSuggestedTypes: of an image's environment the four variables count that name types, by the labels'
// keys.
func TestSuggestedTypes(t *testing.T) {
	environment := map[string]string{
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE":    "u1.small",
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE":      "debian",
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE_KIND": "VirtualMachinePreference",
		"PATH": "/bin",
	}
	want := map[string]string{
		contract.LabelDefaultInstancetype: "u1.small", contract.LabelDefaultPreference: "debian",
		contract.LabelDefaultPreferenceKind: "VirtualMachinePreference",
	}
	var got map[string]string
	if err := json.Unmarshal(suggestedTypes(func(name string) string { return environment[name] }), &got); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
