package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/convert"
)

// offered says in the input what nodes offer.
func offered(ctx context.Context, cached client.Reader, in *convert.Input) error {
	var nodes corev1.NodeList
	if err := cached.List(ctx, &nodes); err != nil {
		return fmt.Errorf("reading what nodes offer: %w", err)
	}
	in.Offers = convert.OffersOf(nodes.Items, convert.Architecture(*in))
	return nil
}
