// Package function stores Functions: reusable prompts with declared inputs and numbered
// revisions. It checks definitions, makes prompts from rows of named values, and keeps
// which revision is published. Its callers check models, schemas and sampling
// parameters. It does not know jobs.
//
// # Templates
//
// A prompt is text with placeholders: {{field}}, with or without blanks inside the
// braces, is replaced by the value of a declared input. There is nothing else: no code,
// no loops, no escapes. Placeholders inside a value are not replaced, so that a row
// cannot insert other fields into its prompt.
//
// # Revisions
//
//	publish ─► n+1, published      draft ─► n+1, the published revision stays
//	rollback n ─► n published      unpublish ─► no revision published
//
// One document holds a Function: its latest revision and the number of the published
// one. Before a new revision replaces the latest, the old one is copied into a document
// of its own, which never changes. Publishing is one compare-and-set of the Function's
// document: of two concurrent publishers one succeeds, and after a crash at any moment
// the Function is in its old or its new state.
package function
