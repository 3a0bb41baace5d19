// Package scene is for tests: what is observed of an instance, made up. [New] and [On] begin a [Scene]; its methods and
// the functions of this package change it as a row of a table says.
package scene
