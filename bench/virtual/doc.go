// Package virtual measures the scheduling of a whole node in virtual time: the real
// pipeline, from a submitted job to its readable result, with simulated GPUs in a
// testing/synctest bubble. It has only tests, which are benchmarks too:
//
//	go test -v -run TestTail ./bench/virtual -size small
//
// Sizes small and full check the figures against bounds. Ratios vary from run to run
// with the order in which goroutines run, so without -size the package measures none.
package virtual
