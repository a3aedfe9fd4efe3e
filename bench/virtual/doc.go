// Package virtual measures the scheduling of a whole node in virtual time: the
// real pipeline, from a submitted job to its readable result, on simulated GPUs
// that take no time at all, inside a testing/synctest bubble. It has no code of
// its own beside its tests, which are benchmarks too:
//
//	go test -v -run TestTail ./bench/virtual -size small
//
// Both sizes, small and full, hold the figures against bounds. A ratio differs from
// run to run with the order in which goroutines run, so without -size none is measured.
package virtual
