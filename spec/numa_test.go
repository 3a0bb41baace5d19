package spec

import (
	"reflect"
	"strings"
	"testing"
)

func TestNUMAAccepts(t *testing.T) {
	for _, text := range []string{
		"memory: {size: 1Gi}\nnuma: {nodes: [{cpus: '0', memory: 1Gi}]}",
		"cpu: {dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}\nnuma: {guestMappingPassthrough: true}",
		"cpu: {dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}\nnuma: {guestMappingPassthrough: true, nodes: [{cpus: '0', memory: 4Mi}]}",
		"cpu: {cores: 4}\nmemory: {size: 1Gi}\nnuma: {nodes: [{cpus: '0-1', memory: 512Mi}, {cpus: 2-3, memory: 512Mi}]}",
		"cpu: {cores: 2, maxVcpus: 4}\nmemory: {size: 1Gi}\nnuma: {nodes: [{cpus: '0,2', memory: '0'}, {memory: 1Gi}, {cpus: '3,1', memory: 0}]}",
		"memory: {size: 4Mi, hugePages: {pageSize: 2Mi}}\nnuma: {nodes: [{cpus: '0', memory: 2Mi, hostNodes: '0-1,3'}, {memory: 2Mi, hostNodes: '1', policy: preferred}]}",
		"memory: {size: 4Mi}\nnuma: {nodes: [{cpus: '0', memory: 2Mi, distances: [{node: 1, value: 11}]}, {memory: 2Mi, distances: [{node: 0, value: 254}]}]}",
	} {
		if faults := Validate(parse(t, "name: a\n"+text)); faults.Err() != nil {
			t.Errorf("%s\nhas faults: %v", text, faults)
		}
	}
}

// TestValidateFields gives each faulty text and the fields that must be named.
func TestValidateFields(t *testing.T) {
	two := "cpu: {cores: 2}\nmemory: {size: 1Gi}\nnuma: {nodes: "
	for _, c := range []struct{ text, fields string }{
		{"cpu: {cores: 4, maxVcpus: 3}", "cpu.maxVcpus"},
		{"cpu: {cores: 4, maxVcpus: 6}", "cpu.maxVcpus"},
		{"cpu: {cores: 4, maxVcpus: 1028}", "cpu.maxVcpus"},
		{"cpu: {sockets: 1025, maxVcpus: 1}", "cpu"},

		{"numa: {}", "numa.nodes"},
		{"numa: {nodes: [" + strings.Repeat("{cpus: '0', memory: 1Mi},", 65) + "]}", "numa.nodes"},
		{"numa: {nodes: [{cpus: '0', memory: 1Gi}]}", "memory.size"},
		{"numa: {guestMappingPassthrough: true}", "numa.guestMappingPassthrough numa.guestMappingPassthrough"},
		{"cpu: {dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}\nnuma: {guestMappingPassthrough: true, nodes: [{cpus: '0', memory: 4Mi, hostNodes: '0'}]}", "numa.nodes[0].hostNodes"},
		{two + "[{cpus: '0', memory: 1Gi}]}", "numa.nodes"},
		{two + "[{cpus: 0-1, memory: 512Mi}]}", "numa.nodes"},
		{two + "[{cpus: 0-2, memory: 1Gi}]}", "numa.nodes[0].cpus"},
		{two + "[{cpus: 0-1, memory: 512Mi}, {cpus: '1', memory: 512Mi}]}", "numa.nodes[1].cpus"},
		{two + "[{cpus: 0-1, memory: 1Gi}, {memory: 0}]}", "numa.nodes[1]"},
		{two + "[{cpus: 1-0, memory: 1Gi}, {cpus: '0-3:1/2', memory: x}, {cpus: all}]}",
			"numa.nodes[0].cpus numa.nodes[1].cpus numa.nodes[1].memory numa.nodes[2].cpus numa.nodes[2].memory"},
		{two + "[{cpus: 0-999999, memory: 1Gi}]}", "numa.nodes[0].cpus"},
		{two + "[{cpus: '" + strings.Repeat("0,", 600) + "0', memory: 1Gi}]}", "numa.nodes[0].cpus"},
		{two + "[{cpus: 0-1, memory: 1Ki}, {memory: 1025Pi}, {memory: -1}]}", "numa.nodes[0].memory numa.nodes[1].memory numa.nodes[2].memory"},
		{"memory: {size: 4Mi, hugePages: {pageSize: 2Mi}}\nnuma: {nodes: [{cpus: '0', memory: 1Mi}, {memory: 3Mi}]}",
			"numa.nodes[0].memory numa.nodes[1].memory"},
		{two + "[{cpus: 0-1, memory: 1Gi, policy: bind}]}", "numa.nodes[0].policy numa.nodes[0].policy"},
		{two + "[{cpus: 0-1, memory: 1Gi, hostNodes: 0-1, policy: preferred}]}", "numa.nodes[0].hostNodes"},
		{two + "[{cpus: 0-1, memory: 1Gi, hostNodes: a}]}", "numa.nodes[0].hostNodes"},
		{two + "[{cpus: '0', memory: 1Gi}, {cpus: '1', memory: 0, hostNodes: '0'}]}", "numa.nodes[1].hostNodes"},
		{two + "[{cpus: '0', memory: 1Gi, distances: [{node: 0, value: 10}, {node: 2, value: 20}, {node: 1, value: 255}, {node: 1, value: 20}]}, {cpus: '1', memory: 0}]}",
			"numa.nodes[0].distances[0].node numa.nodes[0].distances[0].value numa.nodes[0].distances[1].node numa.nodes[0].distances[2].value numa.nodes[0].distances[3].node"},
		{two + "[{cpus: 0-1, memory: 1Gi, distances: [" + strings.Repeat("{},", 65) + "]}]}", "numa.nodes[0].distances"},

		{"hostDevices: [" + strings.Repeat("{},", 17) + "]", "hostDevices"},
		{"hostDevices: [{}, {pciAddress: ''}, {mdev: ''}, {pciAddress: '01:00.0'}, {pciAddress: '0000:0A:00.0'}, {mdev: 0B2A1C1E-5f0d-4c33-9a35-1f3f8f9d7f10}, {name: ',', pciAddress: '0000:01:00.0/..'}]",
			"hostDevices[0] hostDevices[1].pciAddress hostDevices[2].mdev hostDevices[3].pciAddress hostDevices[4].pciAddress hostDevices[5].mdev hostDevices[6].name hostDevices[6].pciAddress"},
		{"hostDevices: [{pciAddress: '0000:01:00.0', name: x}, {pciAddress: '0000:01:00.0', name: x}]", "hostDevices[1].name hostDevices[1].pciAddress"},

		{"devices: {tpm: {}}", "devices.tpm.socket"},
		{"devices: {tpm: {socket: run, model: tpm-spapr}}", "devices.tpm.socket devices.tpm.model"},
		{"devices: {tpm: {socket: /" + strings.Repeat("x", 107) + "}}", "devices.tpm.socket"},

		// All of them at once.
		{"cpu: {maxVcpus: 4000}\nmemory: {size: x}\nnuma: {nodes: [{cpus: x}]}\ndevices: {tpm: {}}\nhostDevices: [{}]",
			"cpu.maxVcpus memory.size numa.nodes[0].cpus numa.nodes[0].memory devices.tpm.socket hostDevices[0]"},
	} {
		faults := Validate(parse(t, "name: a\n"+c.text))
		var fields []string
		for _, f := range faults {
			fields = append(fields, f.Field)
			if f.Message == "" || len(f.Message) > 500 {
				t.Errorf("%.100s: a fault of %s with a message of %d bytes", c.text, f.Field, len(f.Message))
			}
		}
		if got := strings.Join(fields, " "); got != c.fields {
			t.Errorf("%.200s\nhas faults of %q, want %q:\n%v", c.text, got, c.fields, faults)
		}
	}
}

func TestNUMADistances(t *testing.T) {
	nodes := "name: a\nnuma: {nodes: [{distances: %}, {}, {}]}"
	for text, want := range map[string][][]uint8{
		"[]":                     nil,
		"[{node: 1, value: 30}]": {{10, 30, 20}, {30, 10, 20}, {20, 20, 10}},
	} {
		got := NUMADistances(parse(t, strings.Replace(nodes, "%", text, 1)).GetNuma())
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: distances %v, want %v", text, got, want)
		}
	}
	both := parse(t, "name: a\nnuma: {nodes: [{distances: [{node: 1, value: 15}]}, {distances: [{node: 0, value: 25}]}]}")
	if got, want := NUMADistances(both.GetNuma()), ([][]uint8{{10, 15}, {25, 10}}); !reflect.DeepEqual(got, want) {
		t.Errorf("distances %v, want %v", got, want)
	}
}

// FuzzIDs: what is taken is read as what it is written as.
func FuzzIDs(f *testing.F) {
	for _, seed := range []string{"", "0", "0-3,8", "3-1", "65536", "0-65535,0-65535", "(null)", "0-7:1/2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := ParseIDs(text)
		if err != nil {
			return
		}
		if again, err := ParseIDs(ids.String()); len(ids.String()) <= maxIDList && (err != nil || !reflect.DeepEqual(again, ids)) {
			t.Errorf("%q is %v and read back %v, %v", text, ids, again, err)
		}
	})
}
