//go:build race

package tokenize

// Under the race detector pools forget on purpose and time means nothing.
func init() { raced = true }
