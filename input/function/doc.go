// Package function stores Functions: reusable prompts with declared inputs and numbered
// revisions. It checks definitions, makes prompts from rows of named values, and
// records which revision is published. Its callers check models, schemas and sampling
// parameters. It does not know jobs.
//
// # Templates
//
// A prompt is text with placeholders. The placeholder {{field}}, with or without blanks
// inside the braces, is replaced by the value of a declared input. A prompt has no
// other syntax: no code, no loops, no escapes. Placeholders inside a value are not
// replaced, so a row cannot insert other fields into its prompt.
//
// # Revisions
//
//	publish ─► n+1, published      draft ─► n+1, the published revision stays
//	rollback n ─► n published      unpublish ─► no revision published
//
// A Function is one document: its latest revision and the number of its published
// revision. Before a new revision replaces the latest revision, AddRevision copies the
// latest revision into a document of its own, which never changes. Publishing is one
// compare-and-set of the Function's document. If two clients publish at the same time, one
// succeeds. After a crash, the Function is in its old or its new state.
package function
