// Package qmp is a client for the QEMU Machine Protocol, the JSON protocol by
// which QEMU is driven. It knows the protocol and no single command of it, and
// it needs nothing but the standard library, so that it may be linked into a
// process that has to stay small.
//
//	client, err := qmp.Dial(ctx, "/run/vm/monitor.sock")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	events := client.Subscribe("STOP", "RESUME")
//	defer events.Close()
//	if err := client.Execute(ctx, "stop", nil, nil); err != nil {
//		return err
//	}
//	event, err := events.Next(ctx)
//
// # One client on a monitor
//
// QEMU serves one client on a monitor at a time. A second one is left in the
// listening socket's backlog: its connect succeeds and then nothing comes, not
// even the greeting. So give [Dial] and [New] a context with a deadline; the
// error then is [ErrNoGreeting] and says what may be the cause. A VM that is to
// be reached by two processes needs two monitors.
//
// # Calls
//
// Any number of goroutines may call [Client.Execute] at once. QEMU carries out
// commands one after the other, but a reply is matched to its call by its id
// and never by its place: a call that was given up leaves the others alone, and
// its reply, when it comes, is dropped. Ids hold a number drawn for each
// connection, so a reply that QEMU still owes to an earlier client (an agent
// that died with a command under way) is not taken for one of ours.
//
// A call that ends with its context tells nothing about the command: QEMU may
// have carried it out, may still, or may never. Only [ErrNotSent] says that QEMU
// has not seen it. Ask for the state again before acting upon it.
//
// # Events
//
// A [Subscription] has the events that came after it was made, in QEMU's order.
// Subscribe first and ask for the state then, or a change between the two is
// lost. An event that QEMU sent before a reply is in the queue before that
// call returns.
//
// Queues are bounded, in events and in bytes, since a guest can make QEMU emit
// events at will. The reader never waits for a subscriber. When a queue is full
// its oldest event makes room, for the newest tells the state now, and the next
// call of [Subscription.Next] returns a [*MissedError] with the number that is
// gone, before it goes on with those that are left. Anyone who follows a state by
// its events then has to ask for it again.
//
// # The end
//
// However the connection ends, each waiting call, each subscription (when what
// was queued has been read) and [Client.Done] learn of it, and the error is
// [ErrDisconnected]. QEMU's leaving after quit is such an end: the SHUTDOWN event
// and the reply to quit come first, then the connection breaks, by ECONNRESET as
// often as by end of file. Take a disconnect after quit for success.
//
// # What is trusted
//
// Nothing that comes from the other side: a VMM may have been taken over by its
// guest. A message is at most [WithMaxMessageSize] bytes long, and what isn't QMP
// ends the connection with [ErrProtocol]. While one message is decoded the client
// holds a small multiple of its size; at rest it holds one goroutine and a buffer
// of 4 KiB. Unknown events, error classes, capabilities, members of replies and
// kinds of types in the schema are no fault: they come from a newer QEMU and are
// handed on.
//
// The protocol: https://www.qemu.org/docs/master/interop/qmp-spec.html
package qmp
