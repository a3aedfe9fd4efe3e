// Package hostile simulates inference servers that misbehave, by fault, by malice or
// because of a proxy. It owns a list of Kinds. Each Kind answers one request with bytes
// that no honest server would send. Its Server is for tests of a single kind. The
// package does not know the readers of the answers. It knows only whether the honest
// answer is among the bytes.
//
// The bytes of a kind depend only on the request and a seed. Like all simulated
// answers, each header contains "X-Simulated: true".
package hostile
