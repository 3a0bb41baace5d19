package configuration

import (
	"reflect"
	"slices"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestHibernation: a hibernateStrategy takes the place of the shipped one as a whole, a startStrategy
// only where it says something, and what is misspelled has no effect.
func TestHibernation(t *testing.T) {
	fast := "fast"
	shipped := Hibernation{Mode: "Save", WarningTimeoutSeconds: 500, StartStrategy: "Restore"}
	for _, c := range []struct {
		config  string
		want    Hibernation
		ignored []string
	}{
		{"{}", shipped, nil},
		{"{startStrategy: ''}", shipped, nil},
		{"{startStrategy: Boot}", Hibernation{"Save", 500, nil, "Boot"}, nil},
		{"{startStrategy: restore}", shipped, nil},
		{"{startStrategy: Paused}", shipped, []string{"configuration.defaultHibernateConfig.startStrategy"}},
		{"{hibernateStrategy: {}}", Hibernation{"", 0, nil, "Restore"}, nil},
		{"{hibernateStrategy: {mode: save, storageClassName: fast}}", Hibernation{"Save", 0, &fast, "Restore"}, nil},
		{"{hibernateStrategy: {mode: suspendToDisk, warningTimeoutSeconds: 9}}", Hibernation{"SuspendToDisk", 9, nil, "Restore"}, nil},
		{"{hibernateStrategy: {mode: Nap, warningTimeoutSeconds: -9}}", Hibernation{"Save", 0, nil, "Restore"}, []string{"configuration.defaultHibernateConfig.hibernateStrategy.mode"}},
	} {
		got, faults := read(t, "spec: {configuration: {defaultHibernateConfig: "+c.config+"}}")
		if !reflect.DeepEqual(got.Hibernation, c.want) {
			t.Errorf("%s: %+v, want %+v", c.config, got.Hibernation, c.want)
		}
		var ignored []string
		for _, f := range faults {
			ignored = append(ignored, f.Field)
		}
		if !slices.Equal(ignored, c.ignored) {
			t.Errorf("%s: ignored are %q, want %q", c.config, ignored, c.ignored)
		}
	}
}

// TestModeOf: a VM's own mode counts before the cluster's, and Save where neither has one.
func TestModeOf(t *testing.T) {
	of := func(mode string) *kubevirtv1.HibernateStrategy { return &kubevirtv1.HibernateStrategy{Mode: mode} }
	for _, c := range []struct {
		cluster string
		vm      *kubevirtv1.HibernateStrategy
		want    string
	}{
		{"", nil, "Save"},
		{"SuspendToDisk", nil, "SuspendToDisk"},
		{"SuspendToDisk", of(""), "SuspendToDisk"},
		{"SuspendToDisk", of("save"), "Save"},
		{"Save", of("suspendToDisk"), "SuspendToDisk"},
	} {
		if got := (Hibernation{Mode: c.cluster}).ModeOf(c.vm); got != c.want {
			t.Errorf("cluster %q, VM %+v: %q, want %q", c.cluster, c.vm, got, c.want)
		}
	}
}
