// Package readiness presents a capabilities document to an administrator: what is
// fine, what is wrong, and what to do about it.
package readiness

import (
	"fmt"
	"slices"
	"strings"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
)

// Mark is how good something is.
type Mark string

const (
	Pass Mark = "PASS"
	Info Mark = "INFO" // it isn't there, and few miss it
	Warn Mark = "WARN" // something doesn't work, or is not known
	Fail Mark = "FAIL" // nothing runs because of it
)

// Check is one line of the report.
type Check struct {
	Mark Mark
	// Name of what was looked at: "kvm".
	Name string
	// Finding in a sentence.
	Finding string
	// Details, a sentence each.
	Details []string
	// Remedy: what to do; empty: nothing is to be done, or can be.
	Remedy string
}

// Section is what belongs together.
type Section struct {
	Title  string
	Checks []Check
}

// Report is all of it.
type Report struct {
	// Head says which machine it is.
	Head     string
	Sections []Section
	// Verdict in a sentence.
	Verdict string
	// Ready: some VM can run here.
	Ready bool
}

// Of makes the report. It follows from the document and from nothing else.
func Of(doc *capabilitiesv1.Capabilities) Report {
	r := Report{
		Head: head(doc),
		Sections: []Section{
			{"Hypervisors", hypervisors(doc)},
			{"VMMs", vmms(doc)},
			{"Processor", processor(doc)},
			{"Memory", memory(doc)},
			{"Devices", devices(doc)},
			{"Host devices for guests", append(passthrough(doc), permitted(doc)...)},
			{"Confidential computing", confidential(doc)},
			{"Not known", unknown(doc)},
		},
	}
	r.Sections = slices.DeleteFunc(r.Sections, func(s Section) bool { return len(s.Checks) == 0 })
	r.Verdict, r.Ready = verdict(doc)
	if n := r.count(Warn); n > 0 {
		r.Verdict += fmt.Sprintf("; %s above", plural(n, "warning"))
	}
	return r
}

func (r Report) count(m Mark) int {
	n := 0
	for _, s := range r.Sections {
		for _, c := range s.Checks {
			if c.Mark == m {
				n++
			}
		}
	}
	return n
}

func head(doc *capabilitiesv1.Capabilities) string {
	h, cpu := doc.GetHost(), doc.GetHost().GetCpu()
	var parts []string
	if doc.GetArchitecture() != "" {
		parts = append(parts, doc.GetArchitecture())
	}
	if h.GetKernelRelease() != "" {
		parts = append(parts, "Linux "+h.GetKernelRelease())
	}
	if h.GetMemoryBytes() > 0 {
		parts = append(parts, bytes(h.GetMemoryBytes())+" of memory")
	}
	if cpu.GetThreads() > 0 {
		parts = append(parts, plural(int(cpu.GetThreads()), "CPU"))
	}
	return fmt.Sprintf("Node %s: %s", orUnknown(doc.GetNode()), strings.Join(parts, ", "))
}

// unknown are facts that could not be asked, one check each.
func unknown(doc *capabilitiesv1.Capabilities) []Check {
	var all []Check
	for _, u := range doc.GetUnknown() {
		if toldElsewhere(doc, fact.Path(u.GetFact())) {
			continue
		}
		c := Check{Mark: Warn, Name: u.GetFact(), Finding: u.GetReason()}
		if strings.Contains(u.GetReason(), "permission denied") || strings.Contains(u.GetReason(), "EACCES") {
			c.Remedy = "run as root to see it"
		}
		if optional(fact.Path(u.GetFact())) {
			c.Mark = Info
		}
		all = append(all, c)
	}
	return all
}

// toldElsewhere: that a hypervisor or VMM as a whole could not be asked is said
// where it is listed.
func toldElsewhere(doc *capabilitiesv1.Capabilities, part fact.Path) bool {
	return slices.ContainsFunc(doc.GetHypervisors(), func(h *capabilitiesv1.HypervisorCapabilities) bool {
		return part == fact.Hypervisor(h.GetName()) && h.GetState() == unusable
	}) || slices.ContainsFunc(doc.GetVmms(), func(v *capabilitiesv1.VmmCapabilities) bool {
		return part == fact.VMM(v.GetName()) && v.GetState() != works
	})
}

// told: nothing says that a fact could not be asked.
func told(doc *capabilitiesv1.Capabilities, part fact.Path) bool {
	return !slices.ContainsFunc(doc.GetUnknown(), func(u *capabilitiesv1.UnknownFact) bool { return u.GetFact() == string(part) })
}

// notAsked words what the document says of a part that wasn't asked.
func notAsked(doc *capabilitiesv1.Capabilities, part fact.Path) string {
	for _, u := range doc.GetUnknown() {
		if u.GetFact() == string(part) {
			return "not known: " + u.GetReason()
		}
	}
	return "not asked"
}

// optional facts are missing on many a healthy machine.
func optional(part fact.Path) bool {
	return slices.Contains([]fact.Path{fact.HostKSM, fact.HostNested, fact.HostRealtime}, part)
}
