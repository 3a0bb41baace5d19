package convert

import (
	"google.golang.org/protobuf/proto"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// devices has those beside disks and interfaces. The serial console, the guest agent's
// channel and the balloon are there by the VMM's defaults.
func devices(in Input) *specv1.Devices {
	d := &in.Instance.Spec.Domain.Devices
	out := &specv1.Devices{
		Console: onlyOff(d.AutoattachSerialConsole),
		Balloon: onlyOff(d.AutoattachMemBalloon),
		Inputs:  inputs(d),
		Video:   video(in),
	}
	if agentField(&in.Instance.Spec, nil) != nil {
		out.GuestAgent = proto.Bool(true)
	}
	if d.Rng == nil && in.traits().WithoutEntropy {
		out.Entropy = proto.Bool(false)
	}
	if w := d.Watchdog; w != nil && w.I6300ESB != nil {
		out.Watchdog = &specv1.Watchdog{Model: spec.WatchdogI6300ESB, Action: string(w.I6300ESB.Action)}
	}
	if proto.Size(out) == 0 {
		return nil
	}
	return out
}

func inputs(d *kubevirtv1.Devices) (out []*specv1.Input) {
	for _, i := range d.Inputs {
		out = append(out, &specv1.Input{Name: DeviceName(i.Name)})
	}
	return out
}

// video: every guest has a graphics device unless it is switched off.
func video(in Input) *specv1.Video {
	d := &in.Instance.Spec.Domain.Devices
	switch asked := d.AutoattachGraphicsDevice; {
	case asked != nil && !*asked:
		return nil
	case d.Video != nil:
		return &specv1.Video{Type: d.Video.Type}
	case asked == nil && !in.traits().Video:
		return nil
	}
	return new(specv1.Video)
}
