package controller

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/vmlet/vmlet/cluster/agentpods"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/contract"
)

// agents have to know where the agents and VMs' pods are.
type agents interface {
	SetAgents(map[string]nodes.Endpoint)
	SetPod(node string, pod nodes.PodKey)
	RemovePod(node string, pod types.UID)
}

// follower passes the pods of a cache on to agents.
type follower struct {
	to        agents
	namespace string

	mu     sync.Mutex
	agents map[types.UID]*corev1.Pod
}

// follow passes pods on to agents as they come and go.
func follow(ctx context.Context, from cache.Cache, namespace string, to agents) error {
	informer, err := from.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	f := &follower{to: to, namespace: namespace, agents: make(map[types.UID]*corev1.Pod)}
	_, err = informer.AddEventHandler(f.handler())
	return err
}

func (f *follower) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { f.see(o.(*corev1.Pod), true) },
		UpdateFunc: func(before, now any) {
			// A pod that was made again under its name while the API server was away.
			if b := before.(*corev1.Pod); b.UID != now.(*corev1.Pod).UID {
				f.see(b, false)
			}
			f.see(now.(*corev1.Pod), true)
		},
		DeleteFunc: func(o any) {
			if last, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = last.Obj
			}
			if p, is := o.(*corev1.Pod); is {
				f.see(p, false)
			}
		},
	}
}

func (f *follower) see(p *corev1.Pod, there bool) {
	switch {
	case p.Namespace == f.namespace && agentpods.Is(p):
		f.agent(p, there)
	case p.Labels[contract.LabelApp] == contract.LabelAppLauncher && p.Spec.NodeName != "":
		if there {
			f.to.SetPod(p.Spec.NodeName, nodes.PodKey{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		} else {
			f.to.RemovePod(p.Spec.NodeName, p.UID)
		}
	}
}

// agent passes the places of all agents on if one has moved.
func (f *follower) agent(p *corev1.Pod, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.endpoints()
	if there {
		f.agents[p.UID] = p
	} else {
		delete(f.agents, p.UID)
	}
	if now := f.endpoints(); !maps.Equal(before, now) {
		f.to.SetAgents(now)
	}
}

func (f *follower) endpoints() map[string]nodes.Endpoint {
	return agentpods.Endpoints(maps.Values(f.agents))
}
