package instance

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmlet/vmlet/cluster/instance/action"
)

// take carries out an action, and has what is observed follow it.
func (t *round) take(ctx context.Context, a action.Action) error {
	log.FromContext(ctx).V(1).Info("taking a step", "step", a.String())
	switch a := a.(type) {
	case action.Protect:
		return t.protect(ctx)
	case action.CreatePod:
		return podWriter{t}.createAlone(ctx)
	case action.ConfirmEnd:
		agentCaller{t}.confirm(ctx, a.Pod)
	case action.WriteStatus:
		return t.write(ctx, a)
	case action.DeletePod:
		return podWriter{t}.remove(ctx, a.Pod)
	case action.DestroyPod:
		return podWriter{t}.remove(ctx, a.Pod, client.GracePeriodSeconds(0))
	case action.KillGuest:
		agentCaller{t}.kill(a.Pod)
	case action.HurryGuest:
		agentCaller{t}.hurry(a.Pod)
	case action.Resize:
		agentCaller{t}.resize(ctx, a.Pod, a.Sizing)
	case action.PauseGuest:
		agentCaller{t}.pause(a.Pod)
	case action.ResumeGuest:
		agentCaller{t}.resume(a.Pod)
	case action.Serve:
		return podWriter{t}.serve(ctx, a.Pod)
	case action.ReleasePod:
		return podWriter{t}.release(ctx, a.Pod)
	case action.Finalize:
		return t.finalize(ctx)
	case action.LabelInstance:
		return t.label(ctx)
	case action.RelabelPod:
		return podWriter{t}.relabel(ctx, a.Pod)
	case action.Attach:
		return attacher{t}.attach(ctx, a.Claim)
	case action.Detach:
		return attacher{t}.detach(ctx, a.Attachment)
	case action.Save:
		t.Saves.Start(t.key, a.Request)
		t.seeCall()
	case action.CancelSave:
		t.Saves.Cancel(t.key)
		t.seeCall()
	default:
		return fmt.Errorf("there is no action %T", a)
	}
	return nil
}
