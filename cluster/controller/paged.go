package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pods are read from the API server pageSize at a time, and so in pagesAtOnce requests: each may have 1.5 MB, which
// is some three times as much while it is read.
const (
	pageSize    = 10
	pagesAtOnce = 2
)

// paged reads the pods of a namespace past the cache, however large a tenant makes them, and leaves of each what
// the cache would. All other kinds are read as they are.
type paged struct {
	client.Reader
	room chan struct{}
}

func newPaged(live client.Reader) paged {
	return paged{Reader: live, room: make(chan struct{}, pagesAtOnce)}
}

// List lists all pages of pods, which are of the same moment.
func (p paged) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	pods, is := list.(*corev1.PodList)
	if !is {
		return p.Reader.List(ctx, list, options...)
	}
	pods.Items = nil
	for next := ""; ; {
		var page corev1.PodList
		if err := p.page(ctx, &page, append(options[:len(options):len(options)], client.Limit(pageSize), client.Continue(next))); err != nil {
			return err
		}
		pods.ListMeta, pods.Items = page.ListMeta, append(pods.Items, page.Items...)
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

func (p paged) page(ctx context.Context, page *corev1.PodList, options []client.ListOption) error {
	select {
	case p.room <- struct{}{}:
		defer func() { <-p.room }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.Reader.List(ctx, page, options...); err != nil {
		return err
	}
	for i := range page.Items {
		if _, err := leanPod(&page.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
