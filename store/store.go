// Package store keeps records: jobs, their parts, sessions, keys and small
// named values. It owns the contract (Store) and its conformance suite
// (storetest); store/bolt is the embedded store. It knows nothing of rows,
// actors or HTTP.
//
// Everything a method acknowledges is on disk first. A method that returns an
// error from its context or the driver may or may not have taken effect; all
// methods are safe to repeat. One that returns rowmill.ErrUnavailable has not,
// unless the error is ErrOutcomeUnknown too.
//
// # Ownership
//
// A node opens one session and renews it. A job is owned by the session named
// in its record, under an epoch that grows with every change of owner. Every
// write of an owner carries both in a Fence and is refused with
// rowmill.ErrLeaseLost when either is out of date or the session has expired
// by the store's clock. Writes of clients (Create, Cancel) carry no fence.
//
// # Parts
//
// Part records are the only truth about which rows are done. The totals in a
// job's record are derived from them and set absolutely with each commit.
//
// # Money
//
// The ledger says what an account used on each day, and which of it with which
// key. It grows by what a commit newly records, in the same transaction, and
// nothing ever takes from it: not
// the end of a job, nor the removal of its parts. What open jobs may still
// spend is set aside in their records, and given back when they end.
package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// SchemaVersion is the version of the format of records. It grows only where an older
// program would do harm: where a member gets another meaning, or a member is added
// that a program must heed. Other members are added without: a program keeps the
// members that it does not know when it writes a record again.
const SchemaVersion = 1

// ErrNewer says that a record, or the whole store, was written by a version of
// the program whose records this one only reads. Nothing has changed then.
var ErrNewer = fmt.Errorf("a newer version of rowmill wrote it, which this one can read but not write: start that version: %w", rowmill.ErrUnavailable)

// ErrOutcomeUnknown says that a write was sent and no answer came: it may or
// may not have taken effect, now or a little later. It wraps the reason.
// Repeating the call is safe, and so is reading the record again.
var ErrOutcomeUnknown = errors.New("the outcome is unknown: it may or may not have taken effect")

// ErrForgotten says that the record of a job lacks writes that the store had
// acknowledged to who writes now: it has lost its last ones in a crash.
var ErrForgotten = errors.New("the store has lost what it had acknowledged")

// ErrDamaged says that a stored record is not what was written, and that nobody knows what it
// was. It costs that record alone.
var ErrDamaged = errors.New("the stored record is damaged: restore the records from a backup")

// Store is everything the service keeps outside objects.
type Store interface {
	Sessions
	Jobs
	Parts
	Ledger
	Keys
	Values
	Audit
	Retention
	Files
	Deliveries

	// Time is the time by the store's own clock, the one that judges sessions:
	// what nodes whose clocks differ agree on.
	Time(ctx context.Context) (time.Time, error)
	// Ping reports whether the store can be written to now.
	Ping(ctx context.Context) error
	// Confirm returns nil if the store that answers here is the one that all nodes
	// write to, and rowmill.ErrUnavailable if it may be a server that a failover has
	// replaced. A node confirms before it removes anything that another owner of a
	// job may need.
	Confirm(ctx context.Context) error
	// Close releases the store. It is harmless to call it twice.
	Close() error
}

// Sessions are the leases of nodes.
type Sessions interface {
	// OpenSession starts a session of the node named node that expires ttl
	// after its last renewal. Session ids are unique for ever.
	OpenSession(ctx context.Context, node string, ttl time.Duration) (session string, err error)
	// RenewSession extends a session by its ttl from now. It returns
	// rowmill.ErrLeaseLost once the session has expired or was closed; an
	// expired session never comes back.
	RenewSession(ctx context.Context, session string) error
	// CloseSession ends a session at once: its jobs are orphans from then on.
	// Closing an unknown or expired session is harmless.
	CloseSession(ctx context.Context, session string) error
	// LiveSessions returns how many sessions there are that have not expired. It may
	// look at all that is kept.
	LiveSessions(ctx context.Context) (int, error)
}

// Fence proves ownership of a job.
type Fence struct {
	JobID   string
	Session string
	Epoch   int64
}

// Counted reports whether the rows of the job's input are numbered. None is committed
// before.
func (r *Record) Counted() bool { return r.Shards > 0 }

// A Mark is where a record stands; the zero Mark is that of no record.
type Mark struct {
	Version int64
	Session string
	Epoch   int64
	Status  rowmill.Status
	Writes  int64 // of the writer who was asked for
}

// Record is a job with all that is kept about it.
type Record struct {
	SchemaVersion int          `json:"schema_version"`
	Job           rowmill.Job  `json:"job"`
	Spec          rowmill.Spec `json:"spec"`
	Version       int64        `json:"version"`           // grows with every write
	Session       string       `json:"session,omitempty"` // the owner; empty when nobody ever owned it
	Epoch         int64        `json:"epoch"`             // grows with every change of owner

	// Adopters are the last owners under whom nothing of the job was done, the
	// present one as the last. Empty from the moment that a row is done or a shard
	// merged, and while the job waits for something else.
	Adopters []Adopter `json:"adopters,omitempty"`

	// Events are what happened to the job beside what the times here tell, in order,
	// at most MostEvents.
	Events []Event `json:"events,omitempty"`

	DownloadStarted  *time.Time `json:"download_started,omitempty"`  // durable before the first byte is asked for
	Downloader       string     `json:"downloader,omitempty"`        // address of the node that began it, HOST:PORT; empty on one that stands alone
	DownloadFinished *time.Time `json:"download_finished,omitempty"` // all of the input is stored, as it came or as shards
	Shards           int        `json:"shards"`                      // number of shards, set when the input is cut
	Cut              string     `json:"cut,omitempty"`               // which rows are in which shard, see shard.Manifest; empty for an estimate

	// ShardRows and ShardBytes are the bounds of shards, where rows of an input ran
	// before all of it was cut: who cuts it anew takes the same.
	ShardRows  int   `json:"shard_rows,omitempty"`
	ShardBytes int64 `json:"shard_bytes,omitempty"`

	// Lost are the totals of the lost parts, which the account has paid.
	Lost Totals `json:"lost,omitzero"`

	// Reserved is what Reserve set aside for the job; zero once it is over.
	Reserved rowmill.Money `json:"reserved,omitempty"`

	// Ended is when the job ended by the store's clock, where whoever ended it
	// had another time (see EndTolerance). The store alone sets it.
	Ended *time.Time `json:"ended,omitempty"`

	DataRemoved *time.Time `json:"data_removed,omitempty"` // retention took input, parts and results

	InputUntil   *time.Time `json:"input_until,omitempty"`   // objects hold the input of a job that is over until then
	InputRemoved *time.Time `json:"input_removed,omitempty"` // the input of a job that is over went

	// ShownRunning says that a client which waits for the job to run was told
	// where it stands.
	ShownRunning bool `json:"shown_running,omitempty"`

	// SpecDamaged says that the store found the specification damaged and ended the job. Spec
	// then holds the account, the model's price, and the dialect of a batch.
	SpecDamaged bool `json:"spec_damaged,omitempty"`

	// Trace is the span that the job was submitted in, as traceparent has it; empty where
	// the client sent none.
	Trace string `json:"trace,omitempty"`

	// Artifacts by variant name: "full" and "rows" are set when the job
	// succeeds, column subsets when first asked for.
	Artifacts map[string]Artifact `json:"artifacts,omitempty"`
}

// A Head is what clients see of a record.
type Head struct {
	Job          rowmill.Job `json:"job"`
	Account      string      `json:"account"`
	ShownRunning bool        `json:"shown_running,omitempty"` // Record's
}

// Head is what clients see of the record.
func (r *Record) Head() *Head {
	return &Head{Job: r.Job, Account: r.Spec.Account, ShownRunning: r.ShownRunning}
}

// Artifact is a finished result object.
type Artifact struct {
	Key  string `json:"key"`  // blob key
	Size int64  `json:"size"` // bytes
}

// Idempotency ties a submission to a client's Idempotency-Key.
type Idempotency struct {
	Key      string        // as the client sent it; scoped to the account
	BodyHash string        // hash of the request body
	TTL      time.Duration // how long it is kept
}

// Jobs are the job records. Whatever changes one, here and in the interfaces
// below, is a write in the sense of Writer.
type Jobs interface {
	// Create stores a pending job. With idem, a key seen within its TTL with
	// the same BodyHash returns the first record and existed true, with
	// another BodyHash rowmill.ErrConflict. A job id that exists already is
	// rowmill.ErrConflict.
	//
	// For a job that continues an ended job, Create also records this in the ended
	// job, as Continued does. If a job already continues the ended job, Create
	// returns that job and existed true, unless Spec.Continue.Again is set: of
	// concurrent calls only one creates a job.
	Create(ctx context.Context, rec Record, idem *Idempotency) (stored Record, existed bool, err error)

	// Lookup returns the record that an idempotency key of the account led
	// to, rowmill.ErrNotFound for an unused or expired key, and
	// rowmill.ErrConflict where it was used with another body.
	Lookup(ctx context.Context, account string, idem Idempotency) (Record, error)

	// Get returns a record, or rowmill.ErrNotFound.
	Get(ctx context.Context, jobID string) (Record, error)

	// Head returns what clients see of a record, or rowmill.ErrNotFound. It costs the
	// same whatever the size of the input. It is shared with all who ask before the
	// record changes: do not modify it.
	Head(ctx context.Context, jobID string) (*Head, error)

	// Marks returns where the records of jobs stand, in the order of the ids,
	// in one round trip, and how many writes of the named writer they hold. A
	// store that has lost everything says so with an error: it is not the one
	// that knew the jobs.
	Marks(ctx context.Context, jobIDs []string, writer string) ([]Mark, error)

	// List returns an account's jobs, newest first, at most limit of them
	// (limit > 0), after cursor (empty: from the newest). next is empty when
	// nothing is left. A malformed cursor is a *rowmill.InvalidError on field
	// "cursor". Jobs created meanwhile cause neither skips nor repeats. Jobs are
	// shared with other lists for as long as their records do not change: do not
	// modify them.
	List(ctx context.Context, account string, limit int, cursor string) (jobs []*rowmill.Job, next string, err error)

	// Active returns the ids of jobs of each account, in the order of the accounts:
	// of those that are not over all with an owner, live or dead, and the limit
	// newest of the others; and of those created at since or later, over or not,
	// the limit newest. No id comes twice for an account. The cost
	// grows with what is returned and with the jobs of all accounts that have an
	// owner, not with those that are over or wait.
	Active(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error)

	// Batches returns the records of an account's jobs whose Spec has a Raw of the
	// dialect, a page of them in the order of their ids, which is that of their
	// creation, and whether there are more behind them. Jobs created meanwhile
	// cause neither skips nor repeats.
	Batches(ctx context.Context, account, dialect string, page Page) (batches []Record, more bool, err error)

	// Orphans returns up to limit jobs that are not over and have no live
	// owner, oldest first within an account and the accounts in turn, so
	// that no account waits behind another's backlog.
	Orphans(ctx context.Context, limit int) ([]Orphan, error)

	// Claim makes session the owner of a job that is not over and has no live
	// owner: the epoch grows, as NextEpoch says, and a pending job becomes submitted.
	// rowmill.ErrConflict when it has a live owner (also when that is session
	// itself), rowmill.ErrTerminal when it is over, rowmill.ErrLeaseLost when
	// session has expired. by goes into the record as Record.Adopt says, which also
	// notes the event. A job whose specification is damaged fails, with ErrDamaged.
	Claim(ctx context.Context, jobID, session string, by Adopter) (Record, error)

	// Release gives a job back: it is an orphan from then on, and the event is noted.
	Release(ctx context.Context, f Fence) error

	// Update changes a record under a fence. change may run several times and
	// must be a pure function of the record; an error it returns is passed
	// through and nothing is written. The store refuses a change of Account,
	// id, key, run type, Spec, Session, Epoch or Reserved, a status step the state
	// machine lacks (several legal steps in one change are fine: use
	// Job.Become), a change of a set NumRows, and any change to a job that is
	// over (rowmill.ErrTerminal).
	Update(ctx context.Context, f Fence, change func(*Record) error) (Record, error)

	// Finish ends a job under a fence: change sets the terminal state and the
	// final figures. For a success the store recounts the accepted rows of
	// the parts in the same transaction and refuses with rowmill.ErrConflict
	// unless they are exactly NumRows; an estimate needs neither parts nor
	// NumRows. The parts' records stay until DropParts.
	Finish(ctx context.Context, f Fence, change func(*Record) error) (Record, error)

	// Cancel ends a job on its client's behalf, whoever owns it, and also where its
	// specification is damaged: change sets
	// cost and message, Cancel itself the state and time. Of concurrent calls
	// exactly one succeeds; the others get rowmill.ErrTerminal and the record.
	Cancel(ctx context.Context, jobID string, now time.Time, change func(*Record)) (Record, error)

	// AddArtifact records a further artifact of a job that is over unless the
	// variant has one already; the record returned holds the winner.
	AddArtifact(ctx context.Context, jobID, variant string, a Artifact) (Record, error)

	// ReplaceArtifact records is in place of was, if that is the variant's artifact; the
	// record returned holds the winner. Its file cannot be read and was made again.
	ReplaceArtifact(ctx context.Context, jobID, variant string, was, is Artifact) (Record, error)

	// Continued notes in the record of a job that is over which job takes over
	// its rows; of several the one with the greatest id, the last, is kept.
	// rowmill.ErrConflict while the job is not over.
	Continued(ctx context.Context, jobID, by string) error

	// ShowRunning sets ShownRunning, also of a job that is over. Repeating it
	// is harmless.
	ShowRunning(ctx context.Context, jobID string) error
}

// Orphan is a job without a live owner.
type Orphan struct {
	JobID    string
	Account  string
	Priority rowmill.Priority
	Status   rowmill.Status
	Tried    []Adopter // see Record.Tried
}

// Part is the record of a part object: rows of one shard that are done.
type Part struct {
	Key   string `json:"key"`   // blob key, unique per part
	Shard int    `json:"shard"` // which shard its rows belong to
	Rows  int64  `json:"rows"`  // rows it is accepted for
	// Accepted is the set of rows, relative to the shard's first row, that
	// this part is accepted for: those that no earlier part holds. Encoded by
	// RoaringBitmap. Empty in a complete part, which holds the whole shard.
	Accepted []byte `json:"accepted,omitempty"`
	Complete bool   `json:"complete"` // holds every row of its shard once, in order
	Totals   Totals `json:"totals"`   // over the accepted rows
	// Carried says that another job has run these rows: the ledger has them.
	Carried bool  `json:"carried,omitempty"`
	Size    int64 `json:"size"` // bytes of the object
}

// Totals are sums over committed rows.
type Totals struct {
	Rows             int64 `json:"rows"`
	Failed           int64 `json:"failed"`
	TruncatedRows    int64 `json:"truncated_rows"`    // rows whose input was cut
	TruncatedOutputs int64 `json:"truncated_outputs"` // rows whose answer was cut
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	Deduplicated     int64 `json:"deduplicated,omitempty"` // rows that have the answer of an equal row, and were not run
}

// Plus returns the sum of both.
func (t Totals) Plus(u Totals) Totals {
	t.Rows += u.Rows
	t.Failed += u.Failed
	t.TruncatedRows += u.TruncatedRows
	t.TruncatedOutputs += u.TruncatedOutputs
	t.InputTokens += u.InputTokens
	t.OutputTokens += u.OutputTokens
	t.Deduplicated += u.Deduplicated
	return t
}

// Less is what is left of the totals without those of u, which are part of them.
func (t Totals) Less(u Totals) Totals {
	return Totals{
		Rows: max(t.Rows-u.Rows, 0), Failed: max(t.Failed-u.Failed, 0),
		TruncatedRows: max(t.TruncatedRows-u.TruncatedRows, 0), TruncatedOutputs: max(t.TruncatedOutputs-u.TruncatedOutputs, 0),
		InputTokens: max(t.InputTokens-u.InputTokens, 0), OutputTokens: max(t.OutputTokens-u.OutputTokens, 0),
		Deduplicated: max(t.Deduplicated-u.Deduplicated, 0),
	}
}

// Parts are the part records of a job.
type Parts interface {
	// CommitParts records parts, adds the totals of those that are new, and not
	// carried, to the ledger, and sets the job's progress fields from totals, in one
	// transaction: the moment their rows are done. A part whose key is
	// recorded already is skipped. Rows that no other job has run empty the list
	// of Adopters. rowmill.ErrTerminal when the job is over.
	CommitParts(ctx context.Context, f Fence, parts []Part, totals Totals) error

	// ReplaceParts swaps all part records of complete.Shard for complete,
	// whose rows must equal theirs (rowmill.ErrConflict otherwise), and empties the
	// list of Adopters.
	// Repeating it is harmless.
	ReplaceParts(ctx context.Context, f Fence, complete Part) error

	// ListParts returns a job's parts by shard, then in the order of commit,
	// without the lost parts. LostParts returns the lost parts.
	ListParts(ctx context.Context, jobID string) ([]Part, error)
	LostParts(ctx context.Context, jobID string) ([]Part, error)

	// LoseParts marks parts as lost, because their objects cannot be read: their
	// rows are not done any more, and run again. The progress fields follow from the
	// other parts. Tokens and cost stay, since they were paid. change may change the
	// record in the same transaction. Of a job that is over, only the JobID of the
	// fence counts; a job that succeeded is rowmill.ErrConflict. LoseParts returns
	// the totals of all lost parts of the job. Repeating it is harmless.
	LoseParts(ctx context.Context, f Fence, keys []string, change func(*Record)) (Totals, error)

	// DropParts removes the part records of a job that is over.
	DropParts(ctx context.Context, jobID string) error
}

// Ledger is what accounts used, and what their open jobs may still use.
type Ledger interface {
	// Usage returns what the account's jobs used from the UTC day of from to
	// that of to, both included, by day, then model. A day is when the part
	// was committed, by the store's clock. Estimates cost nothing and are not
	// in it. The effort grows with the days asked for, not with the jobs.
	Usage(ctx context.Context, account string, from, to time.Time) ([]Usage, error)

	// UsageByKey is Usage at one moment, by day, then model, then the key that
	// submitted the job. Its sums over keys are those of Usage: what has no key
	// stands under the empty one, where there is any.
	UsageByKey(ctx context.Context, account string, from, to time.Time) ([]KeyUsage, error)

	// Reserve sets usd aside for a job, in place of what it had set aside
	// before, until the job ends. limit is the most that the account may spend
	// in a calendar month, UTC: what it has spent in the current one, what its
	// open jobs have set aside beyond the cost of their committed rows, and
	// usd less the cost of this job's own must not exceed it. Else the error
	// is a *LimitError and nothing changes. Without a limit usd is set aside
	// unasked. Repeating a call is harmless, also for the job's next owner:
	// what is set aside already and what costs nothing is granted.
	Reserve(ctx context.Context, f Fence, usd float64, limit *float64) (Record, error)
}

// Usage is what an account's jobs used of one model on one day.
type Usage struct {
	Day    time.Time // midnight, UTC
	Model  string    // id of the catalog
	Totals Totals    // over the rows committed on that day
	Cost   rowmill.Money
}

// KeyUsage is the part of a Usage that jobs of one key have.
type KeyUsage struct {
	Usage
	Key string // its id; empty for none
}

// KeyOf is the id of the key that submitted a job; empty for none.
func KeyOf(j rowmill.Job) string {
	if j.KeyID == nil {
		return ""
	}
	return *j.KeyID
}

// ByKey is all that an account used, by day and model, and by the key as far as
// keyed tells them apart. The rest has the empty key.
func ByKey(all []Usage, keyed []KeyUsage) []KeyUsage {
	type line struct {
		day   int64
		model string
	}
	lineOf := func(u Usage) line { return line{u.Day.Unix(), u.Model} }
	known := make(map[line]Usage, len(all))
	for _, k := range keyed {
		sum := known[lineOf(k.Usage)]
		known[lineOf(k.Usage)] = Usage{Totals: sum.Totals.Plus(k.Totals), Cost: sum.Cost.Plus(k.Cost)}
	}
	list := slices.Clone(keyed)
	for _, u := range all {
		of := known[lineOf(u)]
		rest := Usage{Day: u.Day, Model: u.Model, Totals: u.Totals.Less(of.Totals), Cost: max(u.Cost-of.Cost, 0)}
		if rest.Totals != (Totals{}) {
			list = append(list, KeyUsage{Usage: rest})
		}
	}
	slices.SortFunc(list, func(a, b KeyUsage) int {
		return cmp.Or(a.Day.Compare(b.Day), strings.Compare(a.Model, b.Model), strings.Compare(a.Key, b.Key))
	})
	return list
}

// LimitError says that a job would take its account beyond the cost it may
// have in a month.
type LimitError struct {
	Asked    rowmill.Money // what the job may still cost
	Spent    rowmill.Money // by all jobs of the account this month
	Reserved rowmill.Money // for other open jobs, beyond what they have spent
	Limit    rowmill.Money
}

// Error names all four amounts.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the job may cost %v; of %v a month, %v are spent and %v are set aside for other jobs",
		e.Asked, e.Limit, e.Spent, e.Reserved)
}

// Key is an API key as it is kept: never the secret, only its hash.
type Key struct {
	ID       string     `json:"id"`
	Hash     []byte     `json:"hash"` // SHA-256 of the secret
	Account  string     `json:"account"`
	Role     string     `json:"role"` // "admin", "user" or "reader"
	Name     string     `json:"name"`
	Created  time.Time  `json:"created"`
	Expires  *time.Time `json:"expires,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"`
	Rotated  *time.Time `json:"rotated,omitempty"` // when its secret was last replaced

	// Dialect is the form in which its answers are written: "sdk", or empty
	// for the API's own.
	Dialect string `json:"dialect,omitempty"`
	// RequestsPerMinute bounds how often it may ask, nil for as often as keys
	// in general.
	RequestsPerMinute *int `json:"requests_per_minute,omitempty"`
}

// Same reports whether k is stored as other is.
func (k Key) Same(other Key) bool {
	a, err := json.Marshal(k)
	b, bad := json.Marshal(other)
	return err == nil && bad == nil && bytes.Equal(a, b)
}

// Keys are the API keys of all accounts.
type Keys interface {
	// PutKey creates or replaces a key.
	PutKey(ctx context.Context, k Key) error
	// ReplaceKey replaces a key that exists and whose hash still is hash.
	// rowmill.ErrNotFound when it was deleted: it never comes back;
	// rowmill.ErrConflict when another call has replaced it.
	ReplaceKey(ctx context.Context, k Key, hash []byte) error
	// ListKeys returns all keys, oldest first.
	ListKeys(ctx context.Context) ([]Key, error)
	// DeleteKey removes a key; an unknown id is rowmill.ErrNotFound.
	DeleteKey(ctx context.Context, id string) error
}

// Values are small named documents, such as settings, quotas and the keys
// that sign URLs, with optimistic locking.
type Values interface {
	// GetValue returns a document and its version, or rowmill.ErrNotFound.
	GetValue(ctx context.Context, name string) (json.RawMessage, int64, error)
	// PutValue writes a document if its version still is version (0: it must
	// not exist) and returns the new version; rowmill.ErrConflict otherwise.
	PutValue(ctx context.Context, name string, doc json.RawMessage, version int64) (int64, error)
	// ListValues returns the names that start with prefix, sorted.
	ListValues(ctx context.Context, prefix string) ([]string, error)
}
