// Package condition has the conditions of instances: their types and reasons, how they are found and merged, and the
// faults that they report. It bounds what is quoted of guests, agents and kubelets. It knows no rule.
package condition
