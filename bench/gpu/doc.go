// Package gpu holds parts of the benchmark on a real GPU: the files of a model with
// random weights, a server for the model if vLLM is not available, and the comparison
// of a real server's step times with the simulator's. It needs no GPU itself, and does
// not know Rowmill.
package gpu
