// Package hostile is how an inference server misbehaves: by fault, by malice or
// because something else stands between. It owns a list of Kinds, each of which
// answers one request with bytes that no honest server would send, and a server
// of its own for tests that want to meet one kind at a time. It knows nothing of
// who reads the answers, and refuses to know what may come of them beyond one
// thing: whether the honest answer is among the bytes.
//
// What a kind writes follows from the request and a seed alone. As all that is
// simulated it says so: wherever a header is sent, "X-Simulated: true" is in it.
package hostile
