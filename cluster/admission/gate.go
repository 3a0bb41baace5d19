package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Bounds of the reviews that are read at once, in bytes. What one takes in memory is some ten
// times its size, and forty times at worst.
const (
	// smallReview is more than nearly every VM takes; reviews that are larger are read one after
	// the other, and wait for each other alone.
	smallReview  = 256 << 10
	smallReviews = 8 * smallReview
	// maxReview has an object of the API server's bound, 3 MiB, as it was and as it is.
	maxReview = 7 << 20
	// patience is how long the API server waits.
	patience = 10 * time.Second
)

// Gate lets reviews in as there is room for them. One that is too large, or does not say how large it is, is
// refused; one that nobody waits for any more is not read.
func Gate(next http.Handler) http.Handler {
	small, large := semaphore.NewWeighted(smallReviews), semaphore.NewWeighted(1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		room, size := small, r.ContentLength
		switch {
		case size < 0:
			http.Error(w, "a review has to say its Content-Length", http.StatusLengthRequired)
			return
		case size > maxReview:
			http.Error(w, fmt.Sprintf("a review of %d bytes is larger than %d", size, maxReview), http.StatusRequestEntityTooLarge)
			return
		case size > smallReview:
			room, size = large, 1
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if err := room.Acquire(ctx, size); err != nil {
			http.Error(w, "vmlet-api has too many reviews to answer: try again", http.StatusTooManyRequests)
			return
		}
		defer room.Release(size)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Bounds of an object, beyond those that its definition has: a mutating webhook is called before
// these are looked at.
const (
	// maxItems is what the longest list of any kind may have.
	maxItems = 300
	// maxMembers are the items and fields of an object in all.
	maxMembers = 1 << 16
	// maxMachine is what a VM may have, in bytes: vmlet-controller keeps all VMs in memory. An instance may have
	// twice as much, as its instancetype's annotations are in it.
	maxMachine = 256 << 10
)

// bounded refuses an object before it is decoded.
type bounded struct{ next admission.Handler }

func (b bounded) Handle(ctx context.Context, request admission.Request) admission.Response {
	why := oversized(request.Object.Raw)
	if why == "" {
		why = tooLarge(request)
	}
	if why == "" && request.Operation == admissionv1.Create && going(request.Object.Raw) {
		// Such an object is not judged, as its finalizers have to go in any case.
		why = "metadata.deletionTimestamp: an object can't be created as one that is being deleted: leave it out"
	}
	if why != "" {
		return admission.Errored(http.StatusUnprocessableEntity, errors.New(why))
	}
	if err := ctx.Err(); err != nil {
		return admission.Errored(http.StatusGatewayTimeout, err)
	}
	return b.next.Handle(ctx, request)
}

// tooLarge says that an object has more bytes than it may, and more than it had; empty: it has not.
func tooLarge(request admission.Request) string {
	most := maxMachine
	if request.Kind.Kind != "VirtualMachine" {
		most *= 2
	}
	n := written(request.Object.Raw)
	if n <= most || n <= written(request.OldObject.Raw) {
		return ""
	}
	return fmt.Sprintf("metadata and spec have %d bytes, and may have %d: move what is long from labels and annotations to a ConfigMap or a Secret", n, most)
}

// written is how many bytes of an object its users wrote: without its status, and without what the API server and
// kubectl note on it, which vmlet-controller does not keep.
func written(text []byte) int {
	var o struct {
		Metadata struct {
			ManagedFields json.RawMessage            `json:"managedFields"`
			Annotations   map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(text, &o) != nil {
		return 0 // decoding says so
	}
	return len(text) - len(o.Status) - len(o.Metadata.ManagedFields) - len(o.Metadata.Annotations[corev1.LastAppliedConfigAnnotation])
}

// going reports whether an object is being deleted.
func going(text []byte) bool {
	var o struct {
		Metadata struct {
			DeletionTimestamp json.RawMessage `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	err := json.Unmarshal(text, &o)
	return err == nil && len(o.Metadata.DeletionTimestamp) > 0 && string(o.Metadata.DeletionTimestamp) != "null"
}

// oversized says which list of a JSON text is too long, or that the whole has too many members; empty: it is
// within bounds. It allocates little, and looks no further than the first one that is.
func oversized(text []byte) string {
	type level struct {
		list  bool
		name  []byte // of the field that the list is in
		items int
	}
	var levels []level
	var last []byte // the last string
	members := 0
	for n := 0; n < len(text); n++ {
		switch text[n] {
		case '"':
			end := stringEnd(text[n+1:])
			last = text[n+1 : n+1+end]
			n += end + 1
		case '[', '{':
			levels = append(levels, level{list: text[n] == '[', name: last, items: 1})
		case ']', '}':
			if len(levels) > 0 {
				levels = levels[:len(levels)-1]
			}
		case ',':
			if members++; members > maxMembers {
				return fmt.Sprintf("it has more than %d fields and items of lists", maxMembers)
			}
			if len(levels) == 0 {
				continue
			}
			in := &levels[len(levels)-1]
			if in.items++; in.list && in.items > maxItems {
				return fmt.Sprintf("%.63s: has more than %d items, which no list of a VM may have", in.name, maxItems)
			}
		}
	}
	return ""
}

// stringEnd is where the string ends whose beginning has been read.
func stringEnd(text []byte) int {
	for n := 0; n < len(text); n++ {
		next := bytes.IndexAny(text[n:], `"\`)
		if next < 0 {
			return len(text)
		}
		if n += next; text[n] == '"' {
			return n
		}
		n++ // what is escaped
	}
	return len(text)
}
