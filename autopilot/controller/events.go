package controller

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmlet/vmlet/autopilot/facts"
)

// maxNote bounds an event's text, in bytes: the API server takes 1 KiB.
const maxNote = 1000

// event records an event about the platform object, and the asset's object if there is one. Events
// whose texts differ count as several: client-go would else show the first text for minutes.
func (c *controller) event(f facts.Facts, about *unstructured.Unstructured, kind, reason, note string) {
	note = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	hash := fnv.New32a()
	hash.Write([]byte(note))
	var related runtime.Object
	if about != nil {
		related = about
	}
	platform := &unstructured.Unstructured{Object: f.Anchor.Object}
	c.Events.Eventf(platform, related, kind, reason, reason+"-"+strconv.FormatUint(uint64(hash.Sum32()), 16), "%s", note)
	c.Log.Info("event", "reason", reason, "note", note)
}

// maxIgnored bounds how many ignored objects get an event: anybody may have made them.
const maxIgnored = 16

// ignore tells who made an object that it does not count.
func (c *controller) ignore(o *unstructured.Unstructured) {
	const why = "it does not control vmlet-autopilot: objects of namespace %s alone do; make it there, or name its namespace by --configuration-namespace"
	c.Events.Eventf(o, nil, warningType, "OtherNamespace", "OtherNamespace", why, cmp.Or(c.Configuration, c.Namespace))
	c.Log.Warn("object of another namespace does not count", "kind", o.GetKind(), "namespace", o.GetNamespace(), "name", o.GetName())
}

// names are those of the objects that get an event.
func names(all []*unstructured.Unstructured) string {
	var text strings.Builder
	for _, o := range all[:min(len(all), maxIgnored)] {
		text.WriteString(o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName() + ";")
	}
	return text.String()
}
