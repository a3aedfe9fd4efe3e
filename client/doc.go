// Package client is the Go client of Rowmill's REST API: it submits jobs, follows them
// and downloads their results, without holding an input or a result in memory. It also
// publishes and runs Functions, and reads usage, quotas, keys and nodes. The command
// line uses this package.
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
// writes this file. A call returns the decoded answer, and an Answer with the JSON of the
// answer. An empty account means the account of the key. These calls do more and are
// written by hand: Submit, Upload, Stream, Save, Backup, Events, Keys, Job and Status.
//
// # Errors
//
// If the service refuses a request, the error is an *APIError with the status, the code and
// the problem with each field; errors.Is matches rowmill.ErrNotFound, ErrConflict and
// ErrExpired. An *UnreachableError means that no answer arrived, or that the answer is not
// from a Rowmill service. A *RowsError means that the rows of a submission could not be
// read. If the context ends, a call returns the cause of the context.
//
// # Retries
//
// Save resumes a broken download of Parquet as Config.Retry says, Upload repeats its
// steps in the same way, and Events reconnects a stream that ended. No other call retries;
// Temporary reports whether a retry may help. A repeated submission creates a second job,
// unless it has the Submission.IdempotencyKey of the first.
package client
