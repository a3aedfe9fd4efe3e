// Package rowmill defines the types of Rowmill, a batch-inference service: jobs and
// their states, the specification that a client submits, models, the outcome of a row,
// and the errors that all layers share. It knows no storage, no transport and no
// actors; all other packages build on it.
//
// docs/architecture.md describes the life of a job, the folders, and which package may
// import which.
package rowmill
