package chtest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// call is one request, and the status that it gets. words are in the answer.
type call struct {
	method, name, body string
	want               int
	words              string
}

func (b *bench) try(c call) {
	b.t.Helper()
	status, answer := b.raw(message(c.method, c.name, c.body))
	if status != c.want || !strings.Contains(answer, c.words) {
		b.t.Errorf("%s %s %.100s: %d %s; want %d with %q", c.method, c.name, c.body, status, answer, c.want, c.words)
	}
	if status < 400 {
		return
	}
	var causes []string
	if answer != "" && (json.Unmarshal([]byte(answer), &causes) != nil || len(causes) == 0) {
		b.t.Errorf("%s %s: the error is no array of strings: %s", c.method, c.name, answer)
	}
	if status >= 500 && len(causes) < 3 {
		b.t.Errorf("%s %s: causes %q: want the API's, the call's and the VM's", c.method, c.name, causes)
	}
}

// plainCalls are those without a body.
func plainCalls() []string {
	return []string{"vm.boot", "vm.delete", "vm.shutdown", "vm.reboot", "vm.pause", "vm.resume", "vm.power-button", "vm.nmi"}
}

func bodyCalls() []string {
	return []string{"vm.resize", "vm.resize-zone", "vm.add-device", "vm.add-disk", "vm.add-net", "vm.add-vsock", "vm.remove-device", "vm.snapshot", "vm.restore"}
}

func TestForm(t *testing.T) {
	b := newBench(t, Knobs{})
	for _, name := range plainCalls() {
		b.try(call{"PUT", name, `{}`, 400, "Bad Request"})
		b.try(call{"GET", name, ``, 400, "Bad Request"})
		b.try(call{"DELETE", name, ``, 400, ""})
	}
	for _, name := range bodyCalls() {
		b.try(call{"PUT", name, ``, 400, "Bad Request"})
		b.try(call{"PUT", name, `{`, 400, "the body"})
		b.try(call{"PUT", name, `[]`, 400, "an object"})
		b.try(call{"PUT", name, `{} {}`, 400, "the body"})
		b.try(call{"PUT", name, "\"\xff\"", 400, "UTF-8"})
		b.try(call{"GET", name, ``, 400, "Bad Request"})
	}
	for _, name := range []string{"vm.info", "vm.counters", "vmm.ping"} {
		b.try(call{"PUT", name, ``, 400, "Bad Request"})
	}
	b.try(call{"GET", "vmm.ping", ``, 200, `"version":"53.0.0"`})
	b.try(call{"GET", "vmm.ping", `{"a":1}`, 200, `"pid":`})
	b.try(call{"PATCH", "vmm.ping", ``, 400, "Bad Request"})
	b.try(call{"PUT", "vm.create", ``, 400, ""})
	b.try(call{"GET", "vm.create", ``, 400, "Bad Request"})
	for _, name := range []string{"vm.crate", "", "vmm.ping?x=1", "vmm.ping/", "vm.coredump", "vmm.nmi"} {
		b.try(call{"PUT", name, ``, 404, "Not Found"})
		b.try(call{"GET", name, ``, 404, "Not Found"})
	}
	if status, _ := b.raw("GET /vmm.ping HTTP/1.1\r\n\r\n"); status != 404 {
		t.Errorf("without the prefix: %d", status)
	}
}

func TestBodies(t *testing.T) {
	b := newBench(t, Knobs{})
	for body, words := range map[string]string{
		`{"memory":{}}`:                                         "size: it is missing",
		`{"memory":{"size":-1}}`:                                "unsigned",
		`{"memory":{"size":1.5}}`:                               "unsigned",
		`{"memory":{"size":"1"}}`:                               "unsigned",
		`{"memory":{"size":1e6}}`:                               "unsigned",
		`{"memory":{"size":1,"size":2}}`:                        "twice",
		`{"memory":{"size":1,"shared":1}}`:                      "true or false",
		`{"memory":{"size":1,"shared":null}}`:                   "true or false",
		`{"memory":{"size":1,"hotplug_method":"acpi"}}`:         "none of",
		`{"memory":null}`:                                       "an object",
		`{"memory":{"size":0,"zones":[{"size":1}]}}`:            "id: it is missing",
		`{"memory":{"size":0,"zones":{}}}`:                      "an array",
		`{"cpus":{"boot_vcpus":1}}`:                             "max_vcpus",
		`{"cpus":{"boot_vcpus":4294967296,"max_vcpus":1}}`:      "32 bits",
		`{"cpus":{"boot_vcpus":1,"max_vcpus":1,"topology":{}}}`: "threads_per_core",
		`{"serial":{"mode":"file"}}`:                            "none of",
		`{"serial":{}}`:                                         "mode",
		`{"disks":[{"path":1}]}`:                                "a string",
		`{"disks":[{"image_type":"raw"}]}`:                      "none of",
		`{"net":[{"mac":"x"}]}`:                                 "MAC",
		`{"net":[{"fds":["x"]}]}`:                               "a descriptor",
		`{"vsock":{"cid":3}}`:                                   "socket",
		`{"landlock_rules":[{"path":"/"}]}`:                     "access",
		`{"platform":{"uuid":"a","system_uuid":"b"}}`:           "twice",
		`{"balloon":{}}`:                                        "size",
	} {
		b.try(call{"PUT", "vm.create", body, 400, words})
	}
	for _, body := range []string{`{"payload":null,"unheard_of":[1],"disks":null,"memory":{"size":1,"new":true}}`, `{}`} {
		b.try(call{"PUT", "vm.create", body, 204, ""})
		b.try(call{"PUT", "vm.delete", "", 204, ""})
	}
}

// TestNoVM: which calls look for the VM's configuration, and which for a VM that
// is booted.
func TestNoVM(t *testing.T) {
	b := newBench(t, Knobs{})
	for _, c := range []call{
		{"GET", "vm.info", "", 404, ""}, {"PUT", "vm.boot", "", 404, ""}, {"PUT", "vm.reboot", "", 404, ""},
		{"PUT", "vm.resize", `{"desired_vcpus":2}`, 404, ""},
		{"PUT", "vm.resize-zone", `{"id":"a","desired_ram":1}`, 404, ""}, {"PUT", "vm.remove-device", `{"id":"a"}`, 404, ""},
		{"PUT", "vm.add-disk", `{"path":"/a"}`, 404, ""}, {"PUT", "vm.add-net", `{"tap":"a"}`, 404, ""},
		{"PUT", "vm.add-vsock", `{"cid":3,"socket":"/a"}`, 404, ""}, {"PUT", "vm.add-device", `{"path":"/a"}`, 404, ""},
		{"GET", "vm.counters", "", 500, ""}, {"PUT", "vm.pause", "", 500, ""}, {"PUT", "vm.resume", "", 500, ""},
		{"PUT", "vm.shutdown", "", 500, ""}, {"PUT", "vm.power-button", "", 500, ""}, {"PUT", "vm.nmi", "", 500, ""},
		{"PUT", "vm.snapshot", `{"destination_url":"file:///tmp"}`, 500, ""}, {"PUT", "vm.delete", "", 204, ""},
	} {
		b.try(c)
	}
}

func TestStates(t *testing.T) {
	b := newBench(t, Knobs{})
	b.must("vm.create", b.config(""))
	snapshot := `{"destination_url":"file://` + t.TempDir() + `"}`
	for _, c := range []call{
		{"PUT", "vm.create", b.config(""), 500, "already"},
		{"GET", "vm.info", "", 200, `"state":"Created"`},
		{"PUT", "vm.pause", "", 500, ""}, {"PUT", "vm.snapshot", snapshot, 500, ""},
		{"PUT", "vm.restore", `{"source_url":"file:///tmp"}`, 500, "already"},
		{"PUT", "vm.boot", "", 204, ""},
		{"PUT", "vm.boot", "", 500, "already"}, {"PUT", "vm.resume", "", 500, "Running"},
		{"PUT", "vm.snapshot", snapshot, 500, "Running"}, {"PUT", "vm.restore", `{"source_url":"file:///tmp"}`, 500, "already"},
		{"PUT", "vm.pause", "", 204, ""}, {"PUT", "vm.pause", "", 500, "Paused"},
		{"GET", "vm.info", "", 200, `"state":"Paused"`},
		{"PUT", "vm.snapshot", snapshot, 204, ""}, {"PUT", "vm.snapshot", snapshot, 500, "exists"},
		{"PUT", "vm.snapshot", `{"destination_url":"/tmp"}`, 500, "file://"},
		{"PUT", "vm.snapshot", `{"destination_url":"file:///nowhere/at/all"}`, 500, "no such file"},
		{"PUT", "vm.resume", "", 204, ""}, {"PUT", "vm.reboot", "", 204, ""},
		{"PUT", "vm.shutdown", "", 204, ""}, {"PUT", "vm.shutdown", "", 500, ""},
		{"GET", "vm.info", "", 200, `"state":"Created"`},
		{"PUT", "vm.boot", "", 204, ""}, {"PUT", "vm.delete", "", 204, ""}, {"PUT", "vm.delete", "", 204, ""},
		{"GET", "vm.info", "", 404, ""},
	} {
		b.try(c)
	}
	want := []string{"vmm starting", "vm booting", "vm booted", "vm resuming", "vm snapshotting", "vm pausing", "vm paused", "vm pausing",
		"vm snapshotting", "vm snapshotted", "vm snapshotting", "vm snapshotted", "vm snapshotting", "vm snapshotted", "vm snapshotting", "vm snapshotted",
		"vm resuming", "vm resumed", "vm rebooting", "vm rebooted", "vm shutdown", "vm booting", "vm booted", "vm shutdown", "vm deleted"}
	if got := b.names(); !slices.Equal(got, want) {
		t.Errorf("events\n%q, want\n%q", got, want)
	}
	if text := b.events.String(); !strings.HasPrefix(text, "{\n  \"timestamp\": {\n    \"secs\": 0,") || !strings.HasSuffix(text, "}\n\n") {
		t.Errorf("an event's form: %.200q", text)
	}
}

// TestBoot: what only a boot notices.
func TestBoot(t *testing.T) {
	b := newBench(t, Knobs{})
	other := b.path("other")
	if err := os.WriteFile(other, []byte("#!/bin/sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	kernel := b.path("kernel")
	disk := func(more string) string {
		return fmt.Sprintf(`{"payload":{"kernel":%q},"disks":[{"path":%q%s}]}`, kernel, b.path("disk"), more)
	}
	for config, words := range map[string]string{
		`{}`:                                   "nothing to boot",
		`{"payload":{}}`:                       "nothing to boot",
		`{"payload":{"kernel":"/nowhere/at"}}`: "no such file",
		fmt.Sprintf(`{"payload":{"kernel":%q,"firmware":%q}}`, kernel, kernel):                                                                   "only one",
		fmt.Sprintf(`{"payload":{"kernel":%q}}`, other):                                                                                          "no kernel",
		b.config(`,"cpus":{"boot_vcpus":2,"max_vcpus":1}`):                                                                                       "max_vcpus",
		b.config(`,"cpus":{"boot_vcpus":2,"max_vcpus":2,"topology":{"threads_per_core":1,"cores_per_die":1,"dies_per_package":1,"packages":1}}`): "topology",
		b.config(`,"watchdog":true,"balloon":{"size":8388608}`):                                                                                  "balloon",
		b.config(`,"vsock":{"cid":2,"socket":"/a"}`):                                                                                             "CID 2",
		b.config(`,"landlock_rules":[{"path":"/nowhere","access":"r"}]`):                                                                         "no such file",
		b.config(`,"landlock_rules":[{"path":"/","access":"x"}]`):                                                                                "only r and w",
		b.config(`,"numa":[{"guest_numa_id":0,"memory_zones":["a"]}]`):                                                                           "no memory zone",
		b.config(`,"rng":{"src":"/nowhere/at/all"}`):                                                                                             "rng",
		b.config(`,"tpm":{"socket":"/nowhere"}`):                                                                                                 "TPM",
		b.config(`,"net":[{"num_queues":1}]`):                                                                                                    "at least 2",
		b.config(`,"net":[{"num_queues":4}]`):                                                                                                    "too many",
		b.config(`,"net":[{"queue_size":100}]`):                                                                                                  "power of two",
		disk(`,"num_queues":2`):                                                                                                                  "too many",
		disk(`,"image_type":"Qcow2"`):                                                                                                            "is Raw, not Qcow2",
		disk(`,"id":"__a"`):                                                                                                                      "own",
		disk(`},{"id":"a","path":"/nowhere"},{"id":"a"`):                                                                                         "taken",
		disk(`},{"path":"/nowhere"`):                                                                                                             "no such file",
		disk(`},{"path":"` + b.path("disk") + `"`):                                                                                               "another VM has",
		disk(`,"serial":"123456789012345678901"`):                                                                                                "20 bytes",
		`{"payload":{"kernel":"k"},"memory":{"size":0}}`:                                                                                         "zones",
		`{"payload":{"kernel":"k"},"memory":{"size":1,"zones":[]}}`:                                                                              "not both",
		`{"payload":{"kernel":"k"},"memory":{"size":1}}`:                                                                                         "multiple",
		`{"payload":{"kernel":"k"},"memory":{"size":4096,"hugepage_size":4096}}`:                                                                 "huge pages",
		`{"payload":{"kernel":"k"},"memory":{"size":0,"zones":[{"id":"a","size":4096,"file":"/nowhere"}]}}`:                                      "no such file",
		fmt.Sprintf(`{"payload":{"kernel":"k"},"memory":{"size":0,"zones":[{"id":"a","size":4096,"shared":true,"mergeable":true,"file":%q}]}}`, b.path("disk")):   "mergeable",
		fmt.Sprintf(`{"payload":{"kernel":"k"},"memory":{"size":0,"zones":[{"id":"a","size":2097152,"shared":true,"file":%q}]}}`, b.path("disk")):                 "has 1048576 bytes",
		fmt.Sprintf(`{"payload":{"kernel":"k"},"memory":{"size":0,"zones":[{"id":"a","size":4096,"shared":true,"file":%q,"host_numa_node":0}]}}`, b.path("disk")): "node",
		`{"payload":{"kernel":"k"},"memory":{"size":0,"zones":[{"id":"a","size":4096},{"id":"a","size":4096}]}}`:                                                  "twice",
	} {
		b.try(call{"PUT", "vm.create", config, 204, ""})
		b.try(call{"PUT", "vm.boot", "", 500, words})
		b.try(call{"PUT", "vm.delete", "", 204, ""})
	}
	// One that is made and can't be booted is in the way until it is shut down.
	b.must("vm.create", `{"payload":{"kernel":"/nowhere/at/all"}}`)
	b.try(call{"PUT", "vm.boot", "", 500, "no such file"})
	b.try(call{"PUT", "vm.boot", "", 500, "already"})
	b.must("vm.shutdown", "")
	b.try(call{"PUT", "vm.boot", "", 500, "no such file"})
}

// TestCreateFails: what fails in a create leaves the VM created.
func TestCreateFails(t *testing.T) {
	b := newBench(t, Knobs{})
	for _, config := range []string{`{"serial":{"mode":"File","file":"/tmp/x"}}`, `{"console":{"mode":"Socket","socket":"/a"}}`,
		`{"landlock_enable":true,"landlock_rules":[{"path":"/","access":""}]}`} {
		b.try(call{"PUT", "vm.create", config, 500, ""})
		b.try(call{"PUT", "vm.create", config, 500, "already"})
		b.must("vm.delete", "")
	}
}
