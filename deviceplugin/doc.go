// Package deviceplugin offers devices to the kubelet by its device plugin API,
// v1beta1. A Kind says which devices there are and what a container is given with
// one; it knows nothing of the API. A Server speaks the API for one resource, on
// a socket of its own, and keeps it registered. The Manager runs a Server for each
// Kind and has it look again when something changes. A resource that isn't there
// is not registered.
package deviceplugin
