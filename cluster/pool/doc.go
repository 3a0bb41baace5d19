// Package pool is the controller of VirtualMachinePools: it keeps as many VirtualMachines as a pool asks
// for, made from its template. It knows VMs by their objects alone: how one starts, hibernates or changes
// while it runs is the business of package machine.
//
// [Reconciler] observes the objects, decide says what is to be done, and act does it. decide is pure and has
// all the rules: start reading there. A pool's members are the VMs that name it as their controller, whatever
// labels others have.
//
// decide works on what caches have. That is safe: a cache shows VMs as they once were all at once, a member's
// name follows from its index, so that nothing is made twice, and changes and deletions are made only to the
// resource version that was decided on.
package pool
