// Package function owns Functions: what a definition may hold, how rows of
// named values become prompts, and which revision is published. It refuses to
// know models, schemas and sampling parameters, which its callers check, and
// jobs.
//
// # Templates
//
// A prompt is text in which {{field}} stands for the value of a declared
// input, with or without blanks inside the braces. There is nothing else: no
// code, no loops, no escapes. A value is inserted as it is and never looked at
// again, so that a row cannot change what the prompt asks of others.
//
// # Revisions
//
//	publish ─► n+1, published      draft ─► n+1, the pointer stays
//	rollback n ─► the pointer moves to n     unpublish ─► it points at nothing
//
// A Function is one document, its head: the latest revision and the number of
// the published one. Before a revision is replaced as the latest it is copied
// into a document of its own, which never changes. Publishing is then one
// compare-and-set of the head: of two publishers one wins, and a crash at any
// moment leaves the Function as it was before or as it is after.
package function
