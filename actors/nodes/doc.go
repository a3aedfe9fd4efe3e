// Package nodes owns what the nodes of a cluster tell each other of themselves,
// when it has changed by enough to be told again, and who of them stands first
// for a job. It knows neither actors nor what carries the words.
package nodes
