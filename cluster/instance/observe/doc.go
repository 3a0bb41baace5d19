// Package observe reads what is known of an instance into a view.View: its objects, from a cache and, before anything
// follows from their absence, from the API server; what nodes' agents say of its pod; and who else uses its claims. It
// writes nothing. Start reading at Observer.Observe.
package observe
