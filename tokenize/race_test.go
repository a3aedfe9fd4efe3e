//go:build race

package tokenize

// Under the race detector pools drop memory on purpose, and time means nothing.
func init() { raced = true }
