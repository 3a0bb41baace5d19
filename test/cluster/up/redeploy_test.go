package main

import (
	"fmt"
	"testing"
)

// TestChanges: what differs is made again and restarted, and nothing else.
func TestChanges(t *testing.T) {
	for name, c := range map[string]struct {
		built map[string]string
		want  string
	}{
		"nothing":               {nil, "[]"},
		"what VMs start":        {map[string]string{"vmlet-shim": "2"}, "[node-image [vmlet-shim] []]"},
		"the agent and a shim":  {map[string]string{"vmlet-shim": "2", "vmlet-agent": "2"}, "[node-image [vmlet-agent vmlet-shim] [daemonset/vmlet-agent]]"},
		"the controller":        {map[string]string{"vmlet-controller": "2"}, "[cluster-image [vmlet-controller] [deployment/vmlet-controller]]"},
		"one of each image":     {map[string]string{"vmlet": "2", "vmlet-api": "2"}, "[node-image [vmlet] [] cluster-image [vmlet-api] [deployment/vmlet-api]]"},
		"a program that is new": {map[string]string{"vmlet-autopilot": "new"}, "[cluster-image [vmlet-autopilot] [deployment/vmlet-autopilot]]"},
	} {
		has, built := make(map[string]string), make(map[string]string)
		for _, i := range images() {
			for program := range i.programs {
				has[program], built[program] = "1", "1"
			}
		}
		for program, sum := range c.built {
			built[program] = sum
		}
		var got []any
		for _, change := range changes(has, built) {
			got = append(got, change.target, change.programs, change.workloads)
		}
		if text := fmt.Sprint(got); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}
