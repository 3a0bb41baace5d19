package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server has pods, and answers with as many as it is asked for.
type server struct {
	client.Reader
	pods int
	most int64         // that it was asked for at once; 0 once for all
	hold chan struct{} // if set, it is waited for

	mu      sync.Mutex
	asked   int
	options client.ListOptions
}

func (s *server) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	if s.hold != nil {
		<-s.hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pods, is := list.(*corev1.PodList)
	if !is {
		return errors.New("no pods")
	}
	s.options = client.ListOptions{}
	s.options.ApplyOptions(options)
	at, limit := 0, s.options.Limit
	_, _ = fmt.Sscan(s.options.Continue, &at)
	s.most = max(s.most, limit)
	for n := at; n < s.pods; n++ {
		if limit > 0 && int64(n-at) == limit {
			pods.Continue = fmt.Sprint(n)
			return nil
		}
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n)}}
		pod.Spec.Containers = []corev1.Container{{Name: "a", Args: []string{"long"}}}
		pods.Items = append(pods.Items, pod)
	}
	return nil
}

// TestPagedPods: pods are read past the cache a few at a time, all of them, and of each what the cache would keep.
func TestPagedPods(t *testing.T) {
	for _, pods := range []int{0, 1, pageSize, pageSize + 1, 3 * pageSize} {
		s := &server{pods: pods}
		list := corev1.PodList{Items: make([]corev1.Pod, 1)}
		if err := newPaged(s).List(t.Context(), &list, client.InNamespace("team"), client.MatchingLabels{"a": "b"}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range list.Items {
			got = append(got, p.Name)
			if p.Spec.Containers[0].Args != nil {
				t.Errorf("of pod %s all is kept", p.Name)
			}
		}
		want := make([]string, 0, pods)
		for n := range pods {
			want = append(want, fmt.Sprint(n))
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d pods %q were read", pods, got)
		}
		if s.most != pageSize || s.options.Namespace != "team" || !s.options.LabelSelector.Matches(labels.Set{"a": "b"}) || s.options.LabelSelector.Matches(labels.Set{}) {
			t.Errorf("it was asked with %+v, for %d at once, want %d of the namespace, by their label", s.options, s.most, pageSize)
		}
	}
	other := &server{}
	if err := newPaged(other).List(t.Context(), &corev1.NodeList{}); err == nil || other.asked != 1 {
		t.Errorf("another kind: %v after %d requests, want the server's own answer after one", err, other.asked)
	}
}

// TestPagesAtOnce: however many workers read pods, few pages of them are in memory; who no longer waits reads none.
func TestPagesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{pods: 1, hold: make(chan struct{})}
		reader := newPaged(s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 9)
		for range cap(ended) {
			go func() { ended <- reader.List(ctx, &corev1.PodList{}) }()
			synctest.Wait()
		}
		if s.asked != pagesAtOnce {
			t.Errorf("%d pages are read at once, want %d", s.asked, pagesAtOnce)
		}
		cancel()
		synctest.Wait()
		if waiting := cap(ended) - len(ended); waiting != pagesAtOnce {
			t.Errorf("%d wait beside a context that has ended, want %d", waiting, pagesAtOnce)
		}
		close(s.hold)
	})
}
