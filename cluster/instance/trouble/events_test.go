package trouble

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
)

// TestEventFault: what pods' events say is reported once, in any order and however often they come.
func TestEventFault(t *testing.T) {
	const warning, normal = corev1.EventTypeWarning, corev1.EventTypeNormal
	for name, test := range map[string]struct {
		events       []corev1.Event
		reason, says string // empty: no fault
	}{
		"none":             {nil, "", ""},
		"no Secret":        {[]corev1.Event{scene.Said(20, normal, "Scheduled", "x"), scene.Said(5, warning, "FailedMount", scene.NoSecret)}, "FailedMount", "there is no Secret web-seed in namespace shop: create it, and the VM starts by itself"},
		"several":          {[]corev1.Event{scene.Said(5, warning, "FailedMount", scene.NoSecret), scene.Said(6, warning, "FailedMount", scene.NoConfigMap), scene.Said(4, warning, "FailedMount", scene.NoSecret)}, "FailedMount", "there is no ConfigMap conf.d, no Secret web-seed in namespace shop:"},
		"no token":         {[]corev1.Event{scene.Said(5, warning, "FailedMount", `failed to fetch token: serviceaccounts "robot" not found`)}, "FailedMount", "no ServiceAccount robot "},
		"named and vague":  {[]corev1.Event{scene.Said(1, warning, "FailedMount", "Unable to attach or mount volumes"), scene.Said(5, warning, "FailedMount", scene.NoSecret)}, "FailedMount", "no Secret web-seed "},
		"mended since":     {[]corev1.Event{scene.Said(20, warning, "FailedMount", scene.NoSecret), scene.Said(5, normal, "Pulling", "Pulling image")}, "", ""},
		"attach":           {[]corev1.Event{scene.Said(5, warning, "FailedAttachVolume", "Multi-Attach error for volume pvc-1")}, "FailedAttachVolume", "begin: Multi-Attach error"},
		"sandbox":          {[]corev1.Event{scene.Said(5, warning, "FailedCreatePodSandBox", "sandbox 0123456789abcdef01: no IP")}, "FailedCreatePodSandBox", "sandbox …: no IP"},
		"of no matter":     {[]corev1.Event{scene.Said(5, warning, "DNSConfigForming", "too many")}, "", ""},
		"a series":         {[]corev1.Event{{Type: warning, Reason: "FailedMount", Message: "x", Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(scene.Time)}}, scene.Said(5, normal, "Scheduled", "")}, "FailedMount", "x"},
		"longer than told": {[]corev1.Event{scene.Said(5, warning, "Failed"+strings.Repeat("x", 1<<16), strings.Repeat("y", 1<<20))}, "Failed" + strings.Repeat("x", condition.MaxGuestText-len("Failed")), "yyy"},
	} {
		for range 2 {
			f := OfEvents(test.events, scene.Namespace, "begin: ")
			if f == nil {
				f = new(condition.Fault)
			}
			if f.Reason != test.reason || !strings.Contains(f.Message, test.says) || len(f.Message) > 2*condition.MaxMessage {
				t.Errorf("%s: %s, %.200q; want %s, %q", name, f.Reason, f.Message, test.reason, test.says)
			}
			slices.Reverse(test.events)
		}
	}
}

// TestMissingAreBounded: of a thousand missing objects a few are named.
func TestMissingAreBounded(t *testing.T) {
	var events []corev1.Event
	for i := range 1000 {
		events = append(events, scene.Said(1, corev1.EventTypeWarning, "FailedMount", fmt.Sprintf(`secret "s%03d" not found`, i)))
	}
	if got := OfEvents(events, scene.Namespace, "").Message; strings.Count(got, "Secret") != MaxMissing {
		t.Errorf("%s", got)
	}
}

// TestRefusal: a ServiceAccount that is missing has the pod refused.
func TestRefusal(t *testing.T) {
	for said, want := range map[string]string{
		`pods "p" is forbidden: error looking up service account shop/robot: serviceaccount "robot" not found`: "there is no ServiceAccount robot in namespace shop: create it, and the VM starts by itself, or correct the name in the VM",
		`pods "p" is forbidden: exceeded quota: q`:                                                             `the API server refused the VM's pod: pods "p" is forbidden: exceeded quota: q`,
	} {
		if got := Refusal(errors.New(said), scene.Namespace); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}
