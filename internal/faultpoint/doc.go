// Package faultpoint names the steps at which tests stop a program of vmlet's, to
// kill it or another just there. In ordinary builds a step costs nothing: [Reach] is
// empty, and inlined. With the build tag faultpoints it tells whoever listens on the
// socket that the environment's VMLET_FAULTPOINTS names, and waits until that hangs
// up; nobody there, or no such variable, is no error.
package faultpoint

// Variable of the environment that has the path of the test's socket. Each step makes a
// connection of its own, sends its name and its process's id in one line, and goes on
// when the other end closes.
const Variable = "VMLET_FAULTPOINTS"

// All returns the names of all steps: PROGRAM.OPERATION.WHAT-IS-DONE.
func All() []string {
	return []string{
		"agent.create.entered",
		"agent.create.kept",
		"agent.launch.chosen",
		"agent.launch.announced",
		"agent.launch.prepared",
		"agent.launch.folder-made",
		"agent.launch.leased",
		"agent.launch.shim-started",
		"agent.launch.acquired",
		"agent.launch.launched",
		"agent.launch.connected",
		"agent.launch.noted",
		"agent.launch.taken-back",
		"agent.restore.entered",
		"agent.save.announced",
		"agent.save.prepared",
		"agent.save.intended",
		"agent.save.committed",
		"agent.stop.announced",
		"agent.stop.over",
		"agent.kill.begun",
		"agent.kill.over",
		"agent.delete.begun",
		"agent.delete.removed",
		"agent.end.heard",
		"agent.end.given-back",
		"agent.end.noted",
		"agent.adopt.loaded",
		"agent.adopt.dialled",
		"agent.adopt.connected",
		"agent.adopt.ended",
		"agent.adopt.classified",
		"agent.adopt.all",
		"agent.attach.planned",
		"agent.attach.attached",
		"agent.detach.planned",
		"agent.detach.detached",
		"shim.run.ready",
		"shim.launch.begun",
		"shim.launch.prepared",
		"shim.launch.opened",
		"shim.launch.started",
		"shim.launch.connected",
		"shim.launch.loaded",
		"shim.launch.continued",
		"shim.launch.undone",
		"shim.save.folder-made",
		"shim.save.stopped",
		"shim.save.state-written",
		"shim.save.memory-written",
		"shim.save.prepared",
		"shim.save.resumed",
		"shim.commit.begun",
		"shim.commit.placed",
		"shim.commit.quit",
		"shim.commit.resumed",
		"shim.stop.pressed",
		"shim.kill.killed",
		"shim.end.settled",
		"shim.end.undone",
		"shim.end.recorded",
		"shim.attach.opened",
		"shim.attach.attached",
		"shim.detach.detached",
		"image.manifest.written",
		"image.manifest.named",
	}
}
