// Package hostile simulates inference servers that misbehave, because of faults, malice
// or a proxy. It has a list of kinds: each AnswerKind is one kind of bad answer. A
// Server is such an inference server; an AttackProxy is a proxy before a correct server.
// The honest answer is the answer that a correct server would send. The package does not
// know the clients that read the answers. It knows only whether the bytes contain the
// honest answer.
//
// The bytes of a kind depend only on the request and a seed. Like all simulated
// answers, each header contains "X-Simulated: true".
package hostile
