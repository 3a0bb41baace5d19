//go:build race

package suites

const race = true
