// Package store stores records: jobs, their parts, sessions, API keys and small named
// documents. It owns the contract (Store) and the conformance suite (storetest).
// store/bolt is the embedded store. This package knows nothing of rows, actors or HTTP.
//
// A method returns success only after its changes are on disk. When a method returns an
// error of its context or of the driver, its write may or may not have taken effect.
// When it returns rowmill.ErrUnavailable, the write has not taken effect, except when
// the error is also ErrOutcomeUnknown. Every method is safe to repeat.
//
// # Ownership
//
// A node opens one session and renews it. The record of a job names the session that
// owns the job, and an epoch that grows with every change of owner. Each write of an
// owner carries both in a Fence. The store refuses the write with rowmill.ErrLeaseLost
// when the session or the epoch is out of date, or when the session has expired by the
// store's clock. Writes of clients (Create, Cancel) carry no fence.
//
// # Parts
//
// Only the part records say which rows are done. The totals in a job's record are
// computed from the parts; each commit replaces them.
//
// # Money
//
// The ledger holds the usage of each account by day, and also by day and API key. A
// commit adds the usage of its new parts in the same transaction. Usage is never
// subtracted, neither when a job ends nor when its parts are removed. The record of an
// open job holds the money that is reserved for the job; the reservation ends with the
// job.
//
// # A new operation
//
// Write its contract into the interface that fits: effect, errors, callers, and if a retry is
// safe. An owner's write takes a Fence. Callers take the small interface, not all of Store.
// Add a call to storetest/operations.go: tests of lost answers, lost writes, cancelled
// contexts and newer versions run every operation of this list. Change an existing document
// only by Rewrite of internal/jsonpreserve, which keeps the members of a newer version;
// CheckVersion (rules.go) refuses to change a record of a newer version.
// replay/writes.go repeats a lost write. Implement the transaction in records, by the rules
// in kv/kv.go: a scan is only a hint; exact results need a read by key. Tables are in
// records/doc.go, the format in records/codec.go. On Redis each read is a round trip, unless
// Prefetch announces it.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// SchemaVersion is the version of the record format that this program writes. Raise it
// only when an older program would damage new records: when a JSON field changes its
// meaning, or when a program must not ignore a new field. Other new fields need no new
// version, because a program that rewrites a record keeps the fields that it does not
// know.
const SchemaVersion = 1

// ErrNewer means that a newer version of the program wrote the record, or the whole
// store, and that this version can only read it. The call has changed nothing.
var ErrNewer = fmt.Errorf("a newer version of rowmill wrote the record, so that this version must not change it: start the newer version: %w", rowmill.ErrUnavailable)

// ErrOutcomeUnknown means that a write was sent and no answer came. The write may take
// effect, at once or a little later, or never. The error wraps the reason. It is safe
// to repeat the call and to read the record again.
var ErrOutcomeUnknown = errors.New("the outcome is unknown: the write may or may not have taken effect")

// ErrLostWrites means that the store lost acknowledged writes of this writer to the
// record of a job, for example in a crash.
var ErrLostWrites = errors.New("the store has lost writes that it had acknowledged")

// ErrDamaged means that a stored record is corrupt and cannot be recovered. Other
// records are not affected.
var ErrDamaged = errors.New("the stored record is damaged: restore the records from a backup")

// Store holds all state of the service except objects.
type Store interface {
	Sessions
	Jobs
	Parts
	Ledger
	APIKeys
	NamedValues
	AuditLog
	Retention
	Files
	Deliveries
	Accounts

	// Time returns the time of the store's own clock, which also decides when sessions
	// expire. All nodes get the time of this one clock, even if their own clocks differ.
	Time(ctx context.Context) (time.Time, error)
	// Ping reports whether the store accepts writes now.
	Ping(ctx context.Context) error
	// ConfirmPrimary checks that this store is the server that all nodes write to. It returns
	// rowmill.ErrUnavailable if a failover may have replaced this server by another. A
	// node calls ConfirmPrimary before it removes data that another owner of a job may need.
	ConfirmPrimary(ctx context.Context) error
	// Close releases the store. A second call is harmless.
	Close() error
}

// Sessions are the leases of nodes.
type Sessions interface {
	// OpenSession starts a session for a node. The session expires when it is not
	// renewed for ttl. Session ids are never reused.
	OpenSession(ctx context.Context, node string, ttl time.Duration) (session string, err error)
	// RenewSession extends a session by its ttl from now. It returns
	// rowmill.ErrLeaseLost when the session has expired or was closed. An expired
	// session cannot be renewed.
	RenewSession(ctx context.Context, session string) error
	// CloseSession ends a session at once. The jobs that the session owns become orphans:
	// other sessions can claim them. Closing an unknown or expired session is harmless.
	CloseSession(ctx context.Context, session string) error
	// CountLiveSessions returns the number of sessions that have not expired. It may scan
	// the whole store.
	CountLiveSessions(ctx context.Context) (int, error)
}

// Idempotency holds the Idempotency-Key of a submission. A repeated submission with this
// key returns the first job.
type Idempotency struct {
	Key      string        // as the client sent it; unique within the account
	BodyHash string        // hash of the request body
	TTL      time.Duration // how long the key is kept
}

// Jobs holds the job records. Every change of a record, by this interface and by Parts,
// Ledger and Retention, counts as a write of the WriteCounter in the context.
type Jobs interface {
	// Create stores a pending job. idem may be nil. If idem.Key was used before, within
	// its TTL, Create stores no job: with the same BodyHash it returns the first record
	// and existed true, with another BodyHash it returns rowmill.ErrConflict. If the job
	// id exists, the error is rowmill.ErrConflict.
	//
	// If the new job continues an ended job (Spec.Continue), Create also records this in
	// the ended job, as MarkContinued does. If another job already continues the ended job,
	// Create returns that other job and existed true, unless Spec.Continue.AllowDuplicate
	// is set. Of several concurrent calls, only one creates a job.
	Create(ctx context.Context, rec Record, idem *Idempotency) (stored Record, existed bool, err error)

	// Lookup returns the record that was created with an idempotency key of the
	// account. It returns rowmill.ErrNotFound for an unused or expired key, and
	// rowmill.ErrConflict when the key was used with a different body.
	Lookup(ctx context.Context, account string, idem Idempotency) (Record, error)

	// Get returns a record, or rowmill.ErrNotFound.
	Get(ctx context.Context, jobID string) (Record, error)

	// Head returns the part of a record that clients see, or rowmill.ErrNotFound. Its
	// cost does not depend on the size of the input. All callers share the Head until
	// the record changes: do not modify it.
	Head(ctx context.Context, jobID string) (*JobHead, error)

	// Revisions returns the revisions of records, in the order of the ids, in one round
	// trip. Each Revision also counts the recorded writes of the named writer. A store that
	// has lost all records returns an error.
	Revisions(ctx context.Context, jobIDs []string, writer string) ([]Revision, error)

	// List returns at most limit (> 0) jobs of an account, newest first, after cursor
	// (empty: from the newest). next is empty on the last page. A malformed cursor is a
	// *rowmill.InvalidError on field "cursor". Jobs that are created between two calls
	// are neither skipped nor repeated. Callers share the jobs until their records
	// change: do not modify them.
	List(ctx context.Context, account string, limit int, cursor string) (jobs []*rowmill.Job, next string, err error)

	// ListActiveJobs returns job ids for each account, in the order of the accounts: all open
	// jobs with an owner, live or dead; the limit newest open jobs without an owner;
	// and the limit newest jobs created at since or later, open or ended. An id appears
	// once per account. The cost grows with the result and with the number of owned
	// jobs of all accounts, not with the number of ended or waiting jobs.
	ListActiveJobs(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error)

	// ListBatches returns a page of the records of an account whose Spec has a Raw of the
	// dialect, ordered by id, which is the order of creation. more reports whether
	// further records follow. Jobs that are created between two calls are neither
	// skipped nor repeated.
	ListBatches(ctx context.Context, account, dialect string, page PageRequest) (batches []Record, more bool, err error)

	// Orphans returns up to limit open jobs without a live owner. The accounts take
	// turns, so that no account waits behind the backlog of another account. The oldest
	// job of an account comes first.
	Orphans(ctx context.Context, limit int) ([]OrphanJob, error)

	// Claim makes session the owner of an open job without a live owner. The epoch grows
	// (see NextEpoch), and a pending job becomes submitted. Claim returns
	// rowmill.ErrConflict when the job is parked or paused, or has a live owner, even if that is
	// session itself; rowmill.ErrTerminal when the job has ended; and
	// rowmill.ErrLeaseLost when session has expired. Claim adds by to the record with
	// Record.AddClaim, which also notes the event. If the specification is damaged, Claim
	// ends the job as failed and returns ErrDamaged.
	Claim(ctx context.Context, jobID, session string, by Claim) (Record, error)

	// Release ends the ownership of a job, so that another session can claim the job.
	// Release also removes the owner's claim from Record.Claims and notes the event.
	Release(ctx context.Context, f Fence) error

	// Update changes a record under a fence. change may run several times, so it must
	// be a pure function of the record; when it returns an error, Update returns the
	// error and writes nothing. The store refuses a change of Account, id, key, run
	// type, Spec, Session, Epoch or Reserved, a change of NumRows once it is set, and a
	// status step that the state machine does not allow (several allowed steps in one
	// change are fine: use Job.Become). If the job has ended, the error is
	// rowmill.ErrTerminal.
	Update(ctx context.Context, f Fence, change func(*Record) error) (Record, error)

	// Finish ends a job under a fence: change sets the terminal status and the final
	// values of fields such as the cost. If the job succeeds, the store counts the
	// accepted rows of the parts in the same transaction and returns rowmill.ErrConflict
	// unless the count equals NumRows. An estimate needs neither parts nor NumRows. The
	// part records stay until DropParts.
	Finish(ctx context.Context, f Fence, change func(*Record) error) (Record, error)

	// Cancel ends a job for its client, whoever owns the job, even when the specification
	// is damaged. change sets cost and message; Cancel sets state and time. Of several
	// concurrent calls, one succeeds; all other calls return rowmill.ErrTerminal and the
	// record.
	Cancel(ctx context.Context, jobID string, now time.Time, change func(*Record)) (Record, error)

	// AddArtifact adds an artifact to a job that has ended. If the variant already has an
	// artifact, nothing changes. The returned record holds the stored artifact.
	AddArtifact(ctx context.Context, jobID, variant string, a Artifact) (Record, error)

	// ReplaceArtifact replaces the artifact old of a variant with remade, because the
	// file of old could not be read and was made again. If the variant has another
	// artifact than old, nothing changes. The returned record holds the stored artifact.
	ReplaceArtifact(ctx context.Context, jobID, variant string, old, remade Artifact) (Record, error)

	// MarkContinued records in the ended job jobID that the job by takes over its rows. If
	// several jobs take over the rows, the record keeps the greatest id, which is the
	// newest job. The error is rowmill.ErrConflict while the job jobID is open.
	MarkContinued(ctx context.Context, jobID, successorID string) error

	// Park releases a job, sets its message, and sets Job.ParkedUntil to the time of the
	// store's clock plus pause. Until this time, Orphans does not list the job.
	Park(ctx context.Context, f Fence, pause time.Duration, message string) error

	// Unpark ends the parking of a job at once, so that a node can claim the job. A
	// repeated call is harmless. The error is rowmill.ErrConflict if the job is not
	// parked.
	Unpark(ctx context.Context, jobID string) error

	// Reschedule changes the priority of an open job, pauses the job, or ends its pause. It
	// returns the new record. The claim of an owner stays; the owner must release the job. No
	// session can claim a paused job. If the job has ended, the error is rowmill.ErrTerminal. A
	// repeated call is harmless.
	Reschedule(ctx context.Context, jobID string, s Schedule) (Record, error)

	// MarkShownRunning sets Record.ShownRunning: a client has asked for the status of the job.
	// The job may be open or ended. A repeated call is harmless.
	MarkShownRunning(ctx context.Context, jobID string) error
}

// A Schedule is a change of the order in which jobs run. Nil fields do not change.
type Schedule struct {
	Priority *Reprioritize
	Paused   *bool
}

// Reprioritize is the new priority of a job, with the quotas of the priority.
type Reprioritize struct {
	Priority             rowmill.Priority
	RowQuota, TokenQuota int64 // as in rowmill.JobQuotas
}

// OrphanJob is a job without a live owner.
type OrphanJob struct {
	JobID    string
	Account  string
	Priority rowmill.Priority
	Status   rowmill.Status
	Claims   []Claim // Record.Claims of the job
}

// Part is the record of a part object, which holds finished rows of a shard.
type Part struct {
	Key   string `json:"key"`   // blob key, unique per part
	Shard int    `json:"shard"` // number of the shard that the rows belong to
	Rows  int64  `json:"rows"`  // number of accepted rows
	// Accepted is the set of rows that count from this part, because no earlier part
	// holds them. Rows are numbered from the shard's first row; RoaringBitmap encodes
	// the set. Empty in a complete part, which holds the whole shard.
	Accepted []byte    `json:"accepted,omitempty"`
	Complete bool      `json:"complete"` // the part holds every row of its shard once, in order
	Totals   RowTotals `json:"totals"`   // over the accepted rows
	// Carried means that another job ran these rows, so that the ledger already has
	// them.
	Carried bool `json:"carried,omitempty"`
	// Unpaid is set for carried rows that an estimate ran: the ledger does not have them yet.
	Unpaid bool  `json:"unpaid,omitempty"`
	Size   int64 `json:"size"` // bytes of the object
}

// RowTotals are sums over committed rows.
type RowTotals struct {
	Rows             int64 `json:"rows"`
	Failed           int64 `json:"failed"`
	TruncatedRows    int64 `json:"truncated_rows"`    // rows whose input was too long and was cut off
	TruncatedOutputs int64 `json:"truncated_outputs"` // rows whose answer was cut off
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	Deduplicated     int64 `json:"deduplicated,omitempty"` // rows that got the answer of an equal row without running
}

// Plus returns the sum of t and u.
func (t RowTotals) Plus(u RowTotals) RowTotals {
	t.Rows += u.Rows
	t.Failed += u.Failed
	t.TruncatedRows += u.TruncatedRows
	t.TruncatedOutputs += u.TruncatedOutputs
	t.InputTokens += u.InputTokens
	t.OutputTokens += u.OutputTokens
	t.Deduplicated += u.Deduplicated
	return t
}

// Minus subtracts u from t; no counter goes below 0.
func (t RowTotals) Minus(u RowTotals) RowTotals {
	return RowTotals{
		Rows: max(t.Rows-u.Rows, 0), Failed: max(t.Failed-u.Failed, 0),
		TruncatedRows: max(t.TruncatedRows-u.TruncatedRows, 0), TruncatedOutputs: max(t.TruncatedOutputs-u.TruncatedOutputs, 0),
		InputTokens: max(t.InputTokens-u.InputTokens, 0), OutputTokens: max(t.OutputTokens-u.OutputTokens, 0),
		Deduplicated: max(t.Deduplicated-u.Deduplicated, 0),
	}
}

// Parts holds the part records of jobs.
type Parts interface {
	// CommitParts stores parts, and adds the totals of new parts to the progress fields
	// of the job and, except for carried parts, to the ledger, all in one transaction.
	// From then on the rows of the parts are done. A part whose key is already stored is
	// skipped, unless it is a carried part that was lost: such a part is restored. New
	// rows that this job ran itself empty Record.Claims. If the job has ended, the error
	// is rowmill.ErrTerminal.
	CommitParts(ctx context.Context, f Fence, parts []Part) error

	// ReplaceParts replaces all part records of complete.Shard with complete, which must
	// hold the same rows (rowmill.ErrConflict otherwise), and empties Record.Claims. A
	// repeated call is harmless.
	ReplaceParts(ctx context.Context, f Fence, complete Part) error

	// ListParts returns a job's parts by shard, and within a shard in the order of
	// commit, without the lost parts. LostParts returns the lost parts.
	ListParts(ctx context.Context, jobID string) ([]Part, error)
	LostParts(ctx context.Context, jobID string) ([]Part, error)

	// MarkPartsLost marks the records of parts as lost, because their objects cannot be read.
	// It removes nothing. The rows of these parts run again. The progress fields are
	// computed from the other parts; tokens and cost stay, because they were paid. change
	// may change the record in the same transaction. If the job has ended, f needs only
	// the JobID. If the job has succeeded, the error is rowmill.ErrConflict. MarkPartsLost
	// returns the totals of all lost parts of the job. A repeated call is harmless.
	MarkPartsLost(ctx context.Context, f Fence, keys []string, change func(*Record)) (RowTotals, error)

	// DropParts removes the part records of a job that has ended.
	DropParts(ctx context.Context, jobID string) error
}

// APIKey is an API key. Only the hash of the secret is stored.
type APIKey struct {
	ID       string     `json:"id"`
	Hash     []byte     `json:"hash"` // SHA-256 of the secret
	Account  string     `json:"account"`
	Role     string     `json:"role"` // "admin", "user" or "reader"
	Name     string     `json:"name"`
	Created  time.Time  `json:"created"`
	Expires  *time.Time `json:"expires,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"`
	Rotated  *time.Time `json:"rotated,omitempty"` // when its secret was last replaced

	// Dialect is the format of the answers: "sdk", or empty for the API's own format.
	Dialect string `json:"dialect,omitempty"`
	// RequestsPerMinute limits the requests of this key; nil means the general limit.
	RequestsPerMinute *int `json:"requests_per_minute,omitempty"`
}

// IsSame reports whether both keys have the same stored form.
func (k APIKey) IsSame(other APIKey) bool {
	a, err := json.Marshal(k)
	b, bad := json.Marshal(other)
	return err == nil && bad == nil && bytes.Equal(a, b)
}

// APIKeys holds the API keys of all accounts.
type APIKeys interface {
	// PutKey creates or replaces a key.
	PutKey(ctx context.Context, k APIKey) error
	// ReplaceKey replaces an existing key whose stored hash equals hash. It returns
	// rowmill.ErrNotFound when the key was deleted, which is final, and
	// rowmill.ErrConflict when another call has replaced the key.
	ReplaceKey(ctx context.Context, k APIKey, hash []byte) error
	// ListKeys returns all keys, oldest first.
	ListKeys(ctx context.Context) ([]APIKey, error)
	// DeleteKey removes a key; an unknown id is rowmill.ErrNotFound.
	DeleteKey(ctx context.Context, id string) error
}

// NamedValues holds small named documents with optimistic locking, for example settings,
// quotas and the keys that sign URLs.
type NamedValues interface {
	// GetValue returns a document and its version, or rowmill.ErrNotFound.
	GetValue(ctx context.Context, name string) (json.RawMessage, int64, error)
	// PutValue writes a document if its stored version equals version (0: the document
	// must not exist) and returns the new version. Otherwise the error is
	// rowmill.ErrConflict.
	PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error)
	// ListValues returns the names that start with prefix, sorted.
	ListValues(ctx context.Context, prefix string) ([]string, error)
}
