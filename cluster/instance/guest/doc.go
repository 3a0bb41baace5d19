// Package guest is what the agent says of a guest that runs, as the status of its instance has it: facts, interfaces,
// conditions, and its size, with the rule that changes it (pure). What a guest says of itself is bounded. Start reading
// at Fill, then at Conditions and Resize.
package guest
