// Package client is the Go client of Rowmill's REST API: it submits jobs, follows them
// and downloads their results, without holding an input or a result in memory. It also
// publishes and runs Functions, and reads usage, quotas, keys and nodes. The command
// line is built on it.
//
// # Keys
//
// Every request carries Config.Key, except downloads from signed URLs. These URLs are
// credentials themselves, so no error and no log contains them. Calls about accounts,
// keys, quotas, nodes and publishing need an administrator's key.
//
// # Calls
//
// The file generated.go has the calls of http/openapi.yaml and their types; `make client`
// writes it. A call returns the decoded answer and an Answer with its JSON. An empty
// account means the account of the key. Some calls do more and are written by hand:
// Submit, Upload, Stream, Save, Backup, Events, Keys, Job and Status.
//
// # Errors
//
// A refusal by the service is an *APIError with its status, its code and the problem
// with each field; errors.Is matches rowmill.ErrNotFound, ErrConflict and ErrExpired.
// An *UnreachableError means that no answer came, or an answer from something other
// than a Rowmill service. A *RowsError means that the rows of a submission could not be
// read. A cancelled context ends a call with its cause.
//
// # Retries
//
// Save resumes a broken download of Parquet as Config.Retry says, Upload repeats its
// steps in the same way, and Events reconnects a stream that ended. Nothing else is
// retried; Temporary reports whether a retry may help. Repeat a submission with the
// same Submission.IdempotencyKey, or it creates a second job.
package client
