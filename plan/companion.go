package plan

// Companion is a process beside the VMM, such as a device's emulator. It is started before the VMM, as the
// same user, has said that it is ready before the VMM's files are opened, and is ended after
// the VMM. One that ends before the VMM ends the VM: its device would be gone. A shim of version
// 1.5 of the protocol doesn't know the field, and is given no such plan.
type Companion struct {
	// Name in logs and errors, which no other has: "swtpm".
	Name string `json:"name"`
	// Field of the specification that it is there for; errors name it.
	Field string `json:"field,omitempty"`
	// Program is its absolute path; Args do not repeat it.
	Program string   `json:"program"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	// Files are inherited: Files[i] is descriptor FirstFile+i. They are of the kinds FilePath, FileListen,
	// FileReceived, FilePair and FileReady.
	Files []File `json:"files,omitempty"`
	// Socket is the name of a unix socket that it makes in the VM's run folder: it is ready when that is
	// there. Empty: it says so on its FileReady, or is ready as soon as it runs. A user who may not write
	// to that folder has a FileListen instead.
	Socket string `json:"socket,omitempty"`
}
