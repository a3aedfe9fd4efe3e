// Package gpu is what the benchmark on a real GPU needs besides the others: the
// files of a model of random weights, a server for it where vLLM cannot be had,
// and the step times that a real server takes, beside those that the simulator
// says. It needs no GPU itself, and knows nothing of Rowmill.
package gpu
