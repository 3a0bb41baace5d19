// Package chapi is a client for cloud-hypervisor's REST API and a reader of its
// event monitor. It knows the calls and the members of the configuration that
// vmlet uses, and it needs nothing but the standard library (and of that not
// net/http, which would take more than a MiB of the shim's memory).
//
//	client := chapi.New(func(ctx context.Context) (net.Conn, error) {
//		return dialer.DialContext(ctx, "unix", "/run/vm/api.sock")
//	})
//	if err := client.Create(ctx, config); err != nil {
//		return err
//	}
//	if _, err := client.AddNet(ctx, chapi.Net{PCI: chapi.PCI{ID: "net0"}}, tap); err != nil {
//		return err
//	}
//	return client.Boot(ctx)
//
// # Calls
//
// Each call has a connection of its own, which ends with it: the server drops a
// connection whose client hung up or sent what it could not read, and takes no
// more than ten. Any number of goroutines may use a [Client]; their calls go one
// after the other, since the VMM has one thread for all of them. So while it
// writes or reads a snapshot nothing else is answered, [Client.Ping] neither:
// watch the process to know whether it lives.
//
// Open files go with the first byte of the request, for the taps of
// [Client.AddNet] and [Client.Restore]. They stay the caller's.
//
// # What an error tells
//
//   - [*Error]: the VMM refused, with its status and its chain of causes.
//     [ErrNotCreated], [ErrBusy] and [ErrUnknownCall] are distinguished by errors.Is.
//   - [ErrNotSent]: the VMM never had the whole request; nothing was done.
//   - [ErrOutcomeUnknown]: it had the request and no answer came, because the
//     context ended or the VMM did. It may have been carried out, may still be, or
//     may never. Ask for the state again before acting upon it.
//   - [ErrDisconnected]: nobody listens, or the VMM hung up. After
//     [Client.ShutdownVMM] take it for success.
//
// With a listening socket that was bound beforehand and handed to the VMM, nobody
// else may keep it open: a connection to a socket that is still held is accepted
// by the kernel though the VMM has gone, and the call then waits for its context.
//
// # What is trusted
//
// Nothing that comes from the other side: a VMM may have been taken over by its
// guest. A reply is at most [DefaultMaxReply] bytes long, an event
// [DefaultMaxEvent]; what isn't HTTP or JSON ends the call, or the stream of
// events, with [ErrProtocol]. Members that this package doesn't know are kept in
// Extra and written back.
//
// Written from cloud-hypervisor's documentation and behaviour as of v53. Its body
// of requests goes through a parser that ignores members it doesn't know, so a
// member that an older version lacks is dropped without a word: find out what it
// can do before (see [RestoreOnDemand]).
package chapi
