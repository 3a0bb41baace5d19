// Package trouble says why a pod of an instance does not start: by what the kubelet says of its containers, and where
// that is silent by the pod's events, and when these are to be read (pure). The same trouble is always the same
// sentence, so that waiting costs no writes. Start reading at Waiting, then at OfEvents.
package trouble
