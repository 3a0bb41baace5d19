// Package lifecycle has the rules of an instance's pod: when it is made, asked about, deleted, hurried and let go, and
// which labels it has; and of the pods that earlier instances of the name have left (pure). A pod is made only for an
// instance that never had one, and let go only when its VM has ended, as view says, and the status says so for good.
// Start reading at CreatePod.
package lifecycle
