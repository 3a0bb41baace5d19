// Command pluginwebhooks serves webhooks as those of a virtualisation stack: it refuses instances whose
// names begin with "denied", and notes on the others that it has seen them, at another path also which
// VMM is to run them. It is the example of docs/adding-a-stack.md.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxReview bounds a request, in bytes: objects have up to 3 MiB.
const maxReview = 8 << 20

func main() {
	http.HandleFunc("/validate-vmi", review(validate))
	http.HandleFunc("/mutate-vmi", review(annotate(seen)))
	http.HandleFunc("/choose-vmm", review(annotate(seen, chosen)))
	err := http.ListenAndServeTLS(":8443", os.Getenv("TLS_CERT_FILE"), os.Getenv("TLS_PRIVATE_KEY_FILE"), nil)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func review(answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		err := json.NewDecoder(io.LimitReader(r.Body, maxReview)).Decode(&review)
		if err != nil || review.Request == nil {
			http.Error(w, "want an AdmissionReview", http.StatusBadRequest)
			return
		}
		review.Response = answer(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}
}

func validate(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if strings.HasPrefix(r.Name, "denied") {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: "the stack's own validation refuses " + r.Name}}
	}
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// Operations of a JSON patch. An instance has annotations already: vmlet's own webhook comes first.
const (
	seen   = `{"op": "add", "path": "/metadata/annotations/stack.example.org~1seen", "value": "true"}`
	chosen = `{"op": "add", "path": "/metadata/annotations/vmlet.io~1vmm", "value": "cloud-hypervisor"}`
)

func annotate(operations ...string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		patch := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: &patch, Patch: []byte("[" + strings.Join(operations, ",") + "]"),
		}
	}
}
