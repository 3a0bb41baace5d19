// Package usage says what a running VM takes of the machine, from /proc and from
// its cgroup, v1 or v2. What can't be known is nil, never 0. It asks no VMM.
package usage
