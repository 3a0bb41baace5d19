// Package faults carries contract.Fault over the node API: in a VM's status, and as a detail of an error. It must not
// know what a fault is about. Start reading at Detail and OfError.
package faults

import (
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// ToProto returns the faults as the API has them, bounded: parts of them may be a shim's or a VMM's words.
func ToProto(all []contract.Fault) (out []*nodev1.Fault) {
	for _, f := range contract.BoundFaults(all) {
		out = append(out, &nodev1.Fault{
			Reason: f.Reason, Field: f.Field, Object: f.Object, Text: f.Text, UseVmm: f.UseVMM, Advice: f.Advice, OtherVm: f.OtherVM, Fields: f.Fields,
		})
	}
	return out
}

// FromProto returns the faults of the API, bounded: an agent may say anything.
func FromProto(all []*nodev1.Fault) (out []contract.Fault) {
	for _, f := range all {
		out = append(out, contract.Fault{
			Reason: f.GetReason(), Field: f.GetField(), Object: f.GetObject(), Text: f.GetText(), UseVMM: f.GetUseVmm(), Advice: f.GetAdvice(),
			OtherVM: f.GetOtherVm(), Fields: f.GetFields(),
		})
	}
	return contract.BoundFaults(out)
}

// Detail is the detail of an error's status that has the faults.
func Detail(all []contract.Fault) *nodev1.Faults { return &nodev1.Faults{Faults: ToProto(all)} }

// OfError returns the faults that an agent's error has as its detail; none: it is one sentence, or an older agent's.
func OfError(err error) []contract.Fault {
	for _, d := range status.Convert(err).Details() {
		if f, is := d.(*nodev1.Faults); is {
			return FromProto(f.GetFaults())
		}
	}
	return nil
}
