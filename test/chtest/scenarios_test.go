package chtest_test

import (
	"os"
	"path/filepath"
	"strings"
)

// scenario is a row of steps with one VMM.
type scenario struct {
	name     string
	steps    []step
	landlock bool // the kernel must have it
	ends     bool // the last step ends the VMM, which may leave it unanswered
}

// vmWith is a VM's configuration, with members that come last and so win over
// none: each is there once.
func vmWith(members ...string) string {
	defaults := map[string]string{
		"payload": `{"kernel":"{dir}/kernel"}`, "memory": `{"size":67108864}`, "cpus": `{"boot_vcpus":1,"max_vcpus":2}`,
		"serial": `{"mode":"Null"}`, "console": `{"mode":"Off"}`,
	}
	all := make([]string, 0, len(defaults)+len(members))
	for _, m := range members {
		name, _, _ := strings.Cut(m, ":")
		delete(defaults, strings.Trim(name, `"`))
		all = append(all, m)
	}
	for name, value := range defaults {
		all = append(all, `"`+name+`":`+value)
	}
	return "{" + strings.Join(all, ",") + "}"
}

func bootEvents() []string { return []string{"vm booting", "vm booted"} }
func createdVM(m ...string) step {
	return step{call: "vm.create", body: vmWith(m...), status: 204, state: "Created"}
}
func booted() step {
	return step{call: "vm.boot", status: 204, state: "Running", events: bootEvents()}
}
func pausedVM() step {
	return step{call: "vm.pause", status: 204, state: "Paused", events: []string{"vm pausing", "vm paused"}}
}

func scenarios() []scenario {
	var all []scenario
	for _, part := range [][]scenario{stateScenarios(), bootScenarios(), deviceScenarios(), snapshotScenarios(), fenceScenarios(), formScenarios()} {
		all = append(all, part...)
	}
	return all
}

// stateScenarios are each call in each state.
func stateScenarios() []scenario {
	return []scenario{
		{name: "no VM", steps: []step{
			{call: "GET vmm.ping", status: 200},
			{call: "GET vm.info", status: 404},
			{call: "GET vm.counters", status: 500},
			{call: "vm.boot", status: 404, events: []string{"vm booting"}},
			{call: "vm.pause", status: 500}, {call: "vm.resume", status: 500}, {call: "vm.shutdown", status: 500},
			{call: "vm.reboot", status: 404, events: []string{"vm rebooting"}},
			{call: "vm.power-button", status: 500}, {call: "vm.nmi", status: 500},
			{call: "vm.delete", status: 204},
			{call: "vm.resize", body: `{"desired_vcpus":2}`, status: 404},
			{call: "vm.resize-zone", body: `{"id":"x","desired_ram":1}`, status: 404},
			{call: "vm.add-disk", body: `{"path":"{dir}/disk"}`, status: 404},
			{call: "vm.add-net", body: `{}`, status: 404},
			{call: "vm.add-vsock", body: `{"cid":3,"socket":"{dir}/vsock"}`, status: 404},
			{call: "vm.remove-device", body: `{"id":"x"}`, status: 404},
			{call: "vm.snapshot", body: `{"destination_url":"file://{dir}/snapshot"}`, status: 500},
			{call: "vm.nothing", status: 404},
		}},
		{name: "created", steps: []step{
			createdVM(),
			{call: "vm.create", body: vmWith(), status: 500, state: "Created"},
			{call: "vm.pause", status: 500, state: "Created"}, {call: "vm.resume", status: 500, state: "Created"},
			{call: "vm.shutdown", status: 500, state: "Created"}, {call: "vm.nmi", status: 500, state: "Created"},
			{call: "vm.power-button", status: 500, state: "Created"}, {call: "GET vm.counters", status: 500, state: "Created"},
			{call: "vm.reboot", status: 404, state: "Created", events: []string{"vm rebooting"}},
			{call: "vm.resize", body: `{"desired_vcpus":2}`, status: 204, state: "Created"},
			{call: "vm.resize", body: `{}`, status: 204, state: "Created"},
			{call: "vm.resize-zone", body: `{"id":"x","desired_ram":1}`, status: 500, state: "Created"},
			{call: "vm.remove-device", body: `{"id":"x"}`, status: 500, says: "x", state: "Created"},
			{call: "vm.snapshot", body: `{"destination_url":"file://{dir}/snapshot"}`, status: 500, state: "Created"},
			{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot"}`, status: 500, state: "Created"},
			{call: "vm.delete", status: 204, events: []string{"vm deleted"}},
		}},
		{name: "running", steps: []step{
			createdVM(), booted(),
			{call: "vm.boot", status: 500, state: "Running"},
			{call: "vm.create", body: vmWith(), status: 500, state: "Running"},
			{call: "vm.resume", status: 500, state: "Running", events: []string{"vm resuming"}},
			{call: "GET vm.counters", status: 200, state: "Running"},
			{call: "vm.resize", body: `{}`, status: 204, state: "Running", events: []string{"vm resizing", "vm resized"}},
			{call: "vm.resize", body: `{"desired_vcpus":3}`, status: 500, state: "Running", events: []string{"vm resizing"}},
			{call: "vm.resize", body: `{"desired_vcpus":0}`, status: 500, state: "Running", events: []string{"vm resizing"}},
			{call: "vm.resize-zone", body: `{"id":"x","desired_ram":1}`, status: 500, state: "Running"},
			{call: "vm.remove-device", body: `{"id":"x"}`, status: 500, says: "x", state: "Running"},
			{call: "vm.snapshot", body: `{"destination_url":"file://{dir}/snapshot"}`, status: 500, state: "Running", events: []string{"vm snapshotting"}},
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
			{call: "vm.shutdown", status: 204, state: "Created", events: []string{"vm shutdown"}},
			booted(),
			{call: "vm.delete", status: 204, events: []string{"vm shutdown", "vm deleted"}},
		}},
		{name: "paused", steps: []step{
			createdVM(), booted(), pausedVM(),
			{call: "vm.boot", status: 500, state: "Paused"},
			{call: "vm.pause", status: 500, state: "Paused", events: []string{"vm pausing"}},
			{call: "vm.nmi", status: 204, state: "Paused"},
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
			pausedVM(),
			{call: "vm.resume", status: 204, state: "Running", events: []string{"vm resuming", "vm resumed"}},
			pausedVM(),
			{call: "vm.shutdown", status: 204, state: "Created", events: []string{"vm shutdown"}},
			booted(), pausedVM(),
			{call: "vm.delete", status: 204, events: []string{"vm shutdown", "vm deleted"}},
		}},
		{name: "left running", steps: []step{createdVM(), booted()}},
		{name: "left paused", steps: []step{createdVM(), booted(), pausedVM()}},
		{name: "left created", steps: []step{createdVM()}},
		{name: "powered off", ends: true, steps: []step{
			createdVM(), booted(),
			{call: "vm.power-button", status: 204, events: []string{"vm shutdown", "vm deleted", "vmm shutdown"}},
		}},
	}
}

// bootScenarios are configurations that vm.create takes and vm.boot doesn't.
func bootScenarios() []scenario {
	var all []scenario
	for name, c := range map[string]struct {
		member, says string
		half         bool // a VM is made before it fails, which is in the way of the next
	}{
		"kernel that isn't there":  {`"payload":{"kernel":"{dir}/nothing"}`, "", true},
		"kernel that is none":      {`"payload":{"kernel":"{dir}/text"}`, "", true},
		"empty payload":            {`"payload":{}`, "", false},
		"two of an id":             {`"disks":[{"id":"same","path":"{dir}/disk","image_type":"Raw"},{"id":"same","path":"{dir}/disk2","image_type":"Raw"}]`, "same", false},
		"a disk twice":             {`"disks":[{"path":"{dir}/disk","image_type":"Raw"},{"path":"{dir}/disk","image_type":"Raw"}]`, "", true},
		"memory out of line":       {`"memory":{"size":67108865}`, "", false},
		"memory and zones":         {`"memory":{"size":67108864,"zones":[{"id":"a","size":67108864}]}`, "", false},
		"no memory":                {`"memory":{"size":0}`, "", false},
		"zone bound to a node":     {`"memory":{"size":0,"zones":[{"id":"a","size":67108864,"file":"{dir}/ram","shared":true,"host_numa_node":0}]}`, "", false},
		"zone in a folder":         {`"memory":{"size":0,"zones":[{"id":"a","size":67108864,"file":"{dir}","shared":true}]}`, "", false},
		"zone that isn't there":    {`"memory":{"size":0,"zones":[{"id":"a","size":67108864,"file":"{dir}/nothing","shared":true}]}`, "", false},
		"room out of line":         {`"memory":{"size":0,"hotplug_method":"VirtioMem","zones":[{"id":"a","size":67108864,"hotplug_size":67108864}]}`, "", false},
		"more vCPUs than most":     {`"cpus":{"boot_vcpus":2,"max_vcpus":1}`, "", false},
		"topology that is not all": {`"cpus":{"boot_vcpus":1,"max_vcpus":4,"topology":{"threads_per_core":1,"cores_per_die":1,"dies_per_package":1,"packages":1}}`, "", false},
		"NUMA node of no zone":     {`"numa":[{"guest_numa_id":0,"cpus":[0],"memory_zones":["nothing"]}]`, "", false},
		"TPM that isn't there":     {`"tpm":{"socket":"{dir}/nothing"}`, "", false},
		"CID of the host":          {`"vsock":{"cid":2,"socket":"{dir}/vsock"}`, "", false},
		"too many queues":          {`"disks":[{"path":"{dir}/disk","image_type":"Raw","num_queues":5}]`, "", false},
		"balloon of all memory":    {`"balloon":{"size":67108864}`, "", false},
		"PCI device 32":            {`"disks":[{"path":"{dir}/disk","image_type":"Raw","pci_device_id":32}]`, "", false},
		"no such PCI segment":      {`"disks":[{"path":"{dir}/disk","image_type":"Raw","pci_segment":1}]`, "", false},
		"serial number too long":   {`"disks":[{"path":"{dir}/disk","image_type":"Raw","serial":"123456789012345678901"}]`, "", false},
		"rule of nothing":          {`"landlock_rules":[{"path":"{dir}/nothing","access":"r"}]`, "", false},
	} {
		again, deleted := []string{"vm booting"}, []string{"vm deleted"}
		if c.half {
			again, deleted = nil, []string{"vm shutdown", "vm deleted"}
		}
		all = append(all, scenario{name: name, steps: []step{
			createdVM(c.member),
			{call: "vm.boot", status: 500, says: c.says, state: "Created", events: []string{"vm booting"}},
			{call: "vm.boot", status: 500, state: "Created", events: again},
			{call: "vm.delete", status: 204, events: deleted},
			createdVM(), booted(),
		}})
	}
	return append(all,
		scenario{name: "all kinds of devices", steps: []step{
			createdVM(`"watchdog":true`, `"pvpanic":true`, `"balloon":{"size":0,"id":"balloon","free_page_reporting":true,"deflate_on_oom":true}`,
				`"rng":{"src":"/dev/urandom"}`, `"vsock":{"cid":3,"socket":"{dir}/vsock"}`, `"disks":[{"id":"disk0","path":"{dir}/disk","image_type":"Raw","pci_device_id":9}]`,
				`"platform":{"uuid":"324e6eaf-d1d1-4bf6-bf41-b9bb6c91fb87","serial_number":"x","oem_strings":["a"]}`, `"nothing_it_knows":1`),
			booted(),
		}},
		scenario{name: "disk that isn't there", steps: []step{
			createdVM(`"disks":[{"path":"{dir}/disk","image_type":"Raw"},{"path":"{dir}/nothing","image_type":"Raw"}]`),
			{call: "vm.boot", status: 500, state: "Created", events: []string{"vm booting"}},
			booted(), // without any disks
		}},
	)
}

// deviceScenarios add, remove and resize.
func deviceScenarios() []scenario {
	resizing := []string{"vm resizing", "vm resized"}
	return []scenario{
		{name: "devices of a VM that runs", steps: []step{
			createdVM(), booted(),
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 200, state: "Running"},
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk2","image_type":"Raw"}`, status: 500, says: "disk1", state: "Running"},
			{call: "vm.add-disk", body: `{"id":"disk2","path":"{dir}/disk","image_type":"Raw"}`, status: 500, state: "Running"},
			{call: "vm.add-disk", body: `{"id":"disk3","path":"{dir}/nothing","image_type":"Raw"}`, status: 500, state: "Running"},
			{call: "vm.add-vsock", body: `{"id":"vsock0","cid":3,"socket":"{dir}/vsock"}`, status: 200, state: "Running"},
			pausedVM(),
			{call: "vm.add-disk", body: `{"id":"disk4","path":"{dir}/disk2","image_type":"Raw"}`, status: 200, state: "Paused"},
			{call: "vm.remove-device", body: `{"id":"disk4"}`, status: 204, state: "Paused"},
			{call: "vm.remove-device", body: `{"id":"disk4"}`, status: 500, says: "disk4", state: "Paused"},
			{call: "vm.add-disk", body: `{"id":"disk4","path":"{dir}/disk2","image_type":"Raw"}`, status: 500, says: "disk4", state: "Paused"},
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
			{call: "vm.add-disk", body: `{"id":"disk4","path":"{dir}/disk2","image_type":"Raw"}`, status: 200, state: "Running"},
		}},
		{name: "device that the guest lets go of", steps: []step{
			createdVM(), booted(),
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 200, state: "Running"},
			{call: "vm.remove-device", body: `{"id":"disk1"}`, status: 204, state: "Running", events: []string{"vm device-removed"}},
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 200, state: "Running"},
		}},
		{name: "device that the guest keeps", steps: []step{
			createdVM(`"payload":{"kernel":"{dir}/keeping"}`), booted(),
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 200, state: "Running"},
			{call: "vm.remove-device", body: `{"id":"disk1"}`, status: 204, state: "Running"},
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk2","image_type":"Raw"}`, status: 500, says: "disk1", state: "Running"},
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 200, state: "Running"},
		}},
		{name: "devices of a VM that is created", steps: []step{
			createdVM(),
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 204, state: "Created"},
			{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk2","image_type":"Raw"}`, status: 500, says: "disk1", state: "Created"},
			{call: "vm.add-disk", body: `{"id":"disk2","path":"{dir}/nothing","image_type":"Raw"}`, status: 204, state: "Created"},
			{call: "vm.remove-device", body: `{"id":"disk2"}`, status: 204, state: "Created"},
			booted(),
		}},
		{name: "vCPUs", steps: []step{
			createdVM(`"cpus":{"boot_vcpus":1,"max_vcpus":4}`), booted(), pausedVM(),
			{call: "vm.resize", body: `{"desired_vcpus":3}`, status: 204, state: "Paused", events: resizing},
			{call: "vm.resize", body: `{"desired_vcpus":1}`, status: 204, state: "Paused", events: resizing},
			{call: "vm.resize", body: `{"desired_vcpus":2}`, status: 429, state: "Paused", events: []string{"vm resizing"}},
			{call: "vm.resize", body: `{"desired_vcpus":3}`, status: 204, state: "Paused", events: resizing}, // those that it still has
			{call: "vm.resize", body: `{"desired_vcpus":2}`, status: 429, state: "Paused", events: []string{"vm resizing"}},
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
			{call: "vm.resize", body: `{"desired_vcpus":2}`, status: 204, state: "Running", events: resizing},
		}},
		{name: "memory", steps: []step{
			createdVM(`"memory":{"size":0,"zones":[{"id":"r0","size":67108864}]}`), booted(),
			{call: "vm.resize", body: `{"desired_ram":134217728}`, status: 500, state: "Running", events: []string{"vm resizing"}},
			{call: "vm.resize-zone", body: `{"id":"r0","desired_ram":134217728}`, status: 500, state: "Running"},
		}},
		{name: "balloon", steps: []step{
			createdVM(`"balloon":{"size":0}`), booted(),
			{call: "vm.resize", body: `{"desired_balloon":16777216}`, status: 204, state: "Running", events: resizing},
		}},
		{name: "no balloon", steps: []step{
			createdVM(), booted(),
			{call: "vm.resize", body: `{"desired_balloon":16777216}`, status: 500, state: "Running", events: []string{"vm resizing"}},
		}},
	}
}

// snapshotScenarios save and restore.
func snapshotScenarios() []scenario {
	snapshot := step{call: "vm.snapshot", body: `{"destination_url":"file://{dir}/snapshot"}`, status: 204, state: "Paused", events: []string{"vm snapshotting", "vm snapshotted"}}
	again, missing, plain := snapshot, snapshot, snapshot
	again.status, missing.status, plain.status = 500, 500, 500
	missing.body, plain.body = `{"destination_url":"file://{dir}/nothing"}`, `{"destination_url":"{dir}/snapshot"}`
	deleted := step{call: "vm.delete", status: 204, events: []string{"vm shutdown", "vm deleted"}}
	restored := []string{"vm restoring", "vm restored"}
	zone := `"memory":{"size":0,"zones":[{"id":"a","size":67108864,"file":"{dir}/ram","shared":true}]}`
	var all []scenario
	for name, memory := range map[string]string{"RAM in the snapshot": `"memory":{"size":67108864}`, "RAM in a file": zone} {
		all = append(all, scenario{name: name, steps: []step{
			createdVM(memory), booted(), pausedVM(), snapshot, again, missing, plain,
			{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot"}`, status: 500, state: "Paused"},
			deleted,
			{call: "vm.restore", body: `{"source_url":"file://{dir}/nothing"}`, status: 500},
			{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot","prefault":true,"memory_restore_mode":"OnDemand"}`, status: 500},
			{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot","memory_restore_mode":"Nothing"}`, status: 400},
			// Only the last of them runs: with its RAM in a file it changes that.
			{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot"}`, status: 204, state: "Paused", events: restored},
			deleted,
			{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot","resume":true}`, status: 204, state: "Running", events: append(restored, "vm resuming", "vm resumed")},
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
		}})
	}
	cut := func(name string) func(string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, "snapshot", name), 100) }
	}
	restore := step{call: "vm.restore", body: `{"source_url":"file://{dir}/snapshot"}`, status: 500}
	short, broken, incomplete := restore, restore, restore
	short.status, short.state, short.events, short.first = 204, "Paused", restored, cut("memory-ranges")
	broken.first, incomplete.first = cut("state.json"), cut("config.json")
	gone := restore
	gone.events = []string{"vm deleted"}
	gone.first = func(dir string) error { return os.Remove(filepath.Join(dir, "snapshot", "memory-ranges")) }
	return append(all, scenario{name: "snapshot that isn't whole", steps: []step{
		createdVM(), booted(), pausedVM(), snapshot, deleted,
		{call: "vm.restore", body: restore.body, status: 204, state: "Paused", events: restored},
		{call: "vm.resume", status: 204, state: "Running", events: []string{"vm resuming", "vm resumed"}},
		deleted, short, deleted, gone, broken, incomplete,
	}})
}

// fenceScenarios are what Landlock leaves a VM.
func fenceScenarios() []scenario {
	fenced := createdVM(`"landlock_enable":true`, `"landlock_rules":[{"path":"{dir}/snapshot","access":"rw"}]`)
	outside := step{call: "vm.add-disk", body: `{"id":"disk1","path":"{dir}/disk","image_type":"Raw"}`, status: 500, state: "Running"}
	return []scenario{
		{name: "with a folder of its own", landlock: true, steps: []step{
			fenced, booted(), outside,
			{call: "vm.reboot", status: 204, state: "Running", events: []string{"vm rebooting", "vm rebooted"}},
			pausedVM(),
			{call: "vm.snapshot", body: `{"destination_url":"file://{dir}/snapshot"}`, status: 204, state: "Paused", events: []string{"vm snapshotting", "vm snapshotted"}},
		}},
	}
}

// formScenarios are requests that are not what the calls take.
func formScenarios() []scenario {
	return []scenario{{name: "form", steps: []step{
		{call: "vm.boot", body: `{}`, status: 400}, {call: "vm.delete", body: `{}`, status: 400},
		{call: "vm.create", status: 400}, {call: "vm.create", body: `{`, status: 400}, {call: "vm.resize", status: 400},
		{call: "vm.create", body: `{"payload":{},"memory":{"size":"a"}}`, status: 400},
		{call: "vm.create", body: `{"payload":{},"memory":{}}`, status: 400, says: "size"},
		{call: "GET vm.boot", status: 400}, {call: "vm.info", status: 400}, {call: "vmm.ping", status: 400},
		{call: "vm.add-disk", body: `{"pci_segment":"a"}`, status: 400},
		{call: "vm.snapshot", body: `{}`, status: 400}, {call: "vm.restore", body: `{}`, status: 400}, {call: "vm.remove-device", body: `{}`, status: 400},
	}}}
}
