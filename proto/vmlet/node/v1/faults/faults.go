// Package faults carries contract.Fault over the node API: in a VM's status, and as a detail of an error. It must not
// know what a fault is about. Start reading at Detail and OfError.
package faults

import (
	"strings"

	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	// maxFaults bounds a list, and maxText each text in it, in bytes.
	maxFaults = 32
	maxText   = 1024
)

// ToProto returns the faults as the API has them, bounded: parts of them may be a shim's or a VMM's words.
func ToProto(all []contract.Fault) (out []*nodev1.Fault) {
	for _, f := range all[:min(len(all), maxFaults)] {
		out = append(out, &nodev1.Fault{
			Reason: clip(f.Reason), Field: clip(f.Field), Object: clip(f.Object), Text: clip(f.Text), UseVmm: clip(f.UseVMM), Advice: clip(f.Advice),
		})
	}
	return out
}

// FromProto returns the faults of the API, bounded: an agent may say anything.
func FromProto(all []*nodev1.Fault) (out []contract.Fault) {
	for _, f := range all[:min(len(all), maxFaults)] {
		out = append(out, contract.Fault{
			Reason: clip(f.GetReason()), Field: clip(f.GetField()), Object: clip(f.GetObject()), Text: clip(f.GetText()),
			UseVMM: clip(f.GetUseVmm()), Advice: clip(f.GetAdvice()),
		})
	}
	return out
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

// clip cuts a text between characters, and what is no text out of it, which the API can't carry.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
