// Package rowmill holds the vocabulary of Rowmill, a batch-inference service:
// jobs and their states, the specification a client submits, models, the
// outcome of one row, and the errors every layer speaks in. It knows no
// storage, no transport and no actors; every other package builds on it.
//
// The life of a job, the folders and their floors are drawn in
// docs/architecture.md.
package rowmill
