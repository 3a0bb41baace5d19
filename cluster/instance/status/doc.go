// Package status has the status of an instance as it follows from what was observed: conditions, volumes and the rest,
// and the events that go with its changes (pure). Phases are those of package phase. A status that says nothing new is
// not written. Start reading at Of.
package status
