// Package client speaks Rowmill's REST API from Go: it submits jobs, follows
// them and fetches their results, never holding an input or a result in memory;
// it also publishes and runs Functions and asks about usage, quotas, keys and
// nodes. It knows nothing of the command line, which is one of its users, and of
// how the service works.
//
// # Keys
//
// Every request carries Config.Key, but for downloads from signed URLs, which
// are credentials themselves: no error and no log shows them. What is about
// accounts, keys, quotas, nodes and publishing needs an administrator's key.
//
// # Errors
//
// A refusal by the service is an *APIError with its status, its code and what is
// wrong with each field; errors.Is finds rowmill.ErrNotFound, ErrConflict and
// ErrExpired in it. An *UnreachableError says that no answer came, or none of a
// Rowmill service; a *RowsError, that the rows of a submission could not be
// read. A cancelled context ends a call with its cause.
//
// # Retries
//
// Save takes a broken download of Parquet up again where it stopped, as
// Config.Retry says, and Events a stream that ends or breaks.
// Nothing else is repeated: Passing tells whether that may help. A submission is
// repeated with the Submission.IdempotencyKey that it had, or it makes a second
// job.
package client
