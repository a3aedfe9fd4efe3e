package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// All stores share the rules in this file. A store may add rules of its own.

// MaxName is the greatest length in bytes of an account, job id, part key, API key id,
// idempotency key or value name. Several such names fit into a key of every store.
const MaxName = 1024

// CheckName returns an error for a name that cannot be part of a key in a store. The
// error text begins with label, for example "the job id".
func CheckName(label, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", label)
	case len(name) > MaxName:
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", label, len(name), MaxName)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%s holds a NUL byte", label)
	}
	return nil
}

// MaxRows is the largest number of rows of a part. A store may add row counts as float64,
// which is exact up to this number.
const MaxRows = 1<<53 - 1

// CheckNew returns an error for a record that Create cannot store. idem may be nil.
func CheckNew(rec Record, idem *Idempotency) error {
	if err := CheckName("the job id", rec.Job.ID); err != nil {
		return err
	}
	if err := CheckName("the account", rec.Spec.Account); err != nil {
		return err
	}
	if rec.Job.Status != rowmill.StatusPending {
		return fmt.Errorf("its status is %q, but a new job is %q", rec.Job.Status, rowmill.StatusPending)
	}
	if rec.Job.KeyID != nil {
		if err := CheckName("the API key", *rec.Job.KeyID); err != nil {
			return err
		}
	}
	if rec.Job.Created.IsZero() {
		return errors.New("its time of creation is not set")
	}
	if idem == nil {
		return nil
	}
	if err := CheckName("the idempotency key", idem.Key); err != nil {
		return err
	}
	if idem.TTL <= 0 {
		return fmt.Errorf("its idempotency key is kept for %v, which must be positive", idem.TTL)
	}
	return nil
}

// Check refuses a part that cannot be recorded.
func (p Part) Check() error {
	if err := CheckName("the key of a part", p.Key); err != nil {
		return err
	}
	t := p.Totals
	switch {
	case p.Shard < 0 || p.Shard > math.MaxInt32:
		return fmt.Errorf("part %s: its shard is %d", p.Key, p.Shard)
	case p.Rows < 0 || p.Rows > MaxRows:
		return fmt.Errorf("part %s: it holds %d rows", p.Key, p.Rows)
	case min(t.Rows, t.Failed, t.TruncatedRows, t.TruncatedOutputs, t.InputTokens, t.OutputTokens, t.Deduplicated) < 0:
		return fmt.Errorf("part %s: its totals are negative: %+v", p.Key, t)
	}
	return nil
}

// CheckVersion returns ErrNewer for a record that this program can read but must not
// write: it has a newer schema version, or a status that this program does not know.
func (rec *Record) CheckVersion() error {
	switch {
	case rec.SchemaVersion > SchemaVersion:
		return fmt.Errorf("job %s has schema version %d, this program writes %d: %w", rec.Job.ID, rec.SchemaVersion, SchemaVersion, ErrNewer)
	case !slices.Contains(rowmill.Statuses(), rec.Job.Status):
		return fmt.Errorf("job %s is %q, which this program does not know: %w", rec.Job.ID, rec.Job.Status, ErrNewer)
	}
	return nil
}

// ApplyChange calls change with rec, for an Update or, if end is true, for a Finish. It
// returns an error for a forbidden change, and returns an error of change unmodified. It
// does not check rec.Spec, because the store compares the stored form of the
// specification.
func (rec *Record) ApplyChange(change func(*Record) error, end bool) error {
	before := fixedFieldsOf(*rec)
	if err := change(rec); err != nil {
		return err
	}
	if err := before.checkUnchanged(rec); err != nil {
		return fmt.Errorf("change job %s: %w", before.id, err)
	}
	rec.dropEarlierClaims(before)
	if end && !rec.Job.Status.IsTerminal() {
		return fmt.Errorf("finish job %s: the change leaves it %s", before.id, rec.Job.Status)
	}
	return nil
}

// Cancel applies Jobs.Cancel to rec. change gets the record before the cancel and may be
// nil. If the job has ended, it stays unchanged and the error is rowmill.ErrTerminal.
func (rec *Record) Cancel(now time.Time, change func(*Record)) error {
	before := fixedFieldsOf(*rec)
	if before.status.IsTerminal() {
		return fmt.Errorf("cancel job %s, which is %s: %w", before.id, before.status, rowmill.ErrTerminal)
	}
	if change != nil {
		change(rec)
	}
	if rec.Job.Status != before.status {
		return fmt.Errorf("cancel job %s: the change function set the status %s, but only Cancel may change the status", before.id, rec.Job.Status)
	}
	err := rec.Job.Become(rowmill.StatusCancelled, now)
	if err == nil {
		err = before.checkUnchanged(rec)
	}
	if err != nil {
		return fmt.Errorf("cancel job %s: %w", before.id, err)
	}
	return nil
}

// fixedFields holds fields of a record before a change, to compare them with the record
// after the change. The change must not modify most of them.
type fixedFields struct {
	id       string
	created  time.Time
	run      rowmill.RunType
	key      string
	status   rowmill.Status
	counted  bool // Job.NumRows is set
	rows     int64
	session  string
	epoch    int64
	version  int64
	schema   int
	reserved rowmill.Money
	priority rowmill.Priority
	paused   bool

	started, finished bool // the download of the input has started or finished
	shards            int
}

func fixedFieldsOf(rec Record) fixedFields {
	k := fixedFields{
		id: rec.Job.ID, created: rec.Job.Created, run: rec.Job.RunType, key: APIKeyID(rec.Job), status: rec.Job.Status,
		session: rec.Session, epoch: rec.Epoch, version: rec.Version, schema: rec.SchemaVersion, reserved: rec.Reserved,
		priority: rec.Job.Priority, paused: rec.Job.Paused,
		started: rec.DownloadStarted != nil, finished: rec.DownloadFinished != nil, shards: rec.Shards,
	}
	if rec.Job.NumRows != nil {
		k.counted, k.rows = true, *rec.Job.NumRows
	}
	return k
}

// checkUnchanged returns an error if rec has another value in a field that must not change, or a
// status that the state machine does not allow after the status in k.
func (k fixedFields) checkUnchanged(rec *Record) error {
	switch {
	case rec.Job.ID != k.id:
		return errors.New("its id cannot change")
	case !rec.Job.Created.Equal(k.created):
		return errors.New("its time of creation cannot change")
	case rec.Job.RunType != k.run:
		return errors.New("its run type cannot change")
	case rec.Job.Priority != k.priority, rec.Job.Paused != k.paused && !rec.Job.Status.IsTerminal():
		return errors.New("only Reschedule changes its priority or its pause")
	case APIKeyID(rec.Job) != k.key:
		return errors.New("the key that submitted it cannot change")
	case rec.Reserved != k.reserved:
		return errors.New("only Reserve can change its reservation")
	case rec.Session != k.session || rec.Epoch != k.epoch:
		return errors.New("only Claim and Release can change its owner and epoch")
	case rec.Version != k.version || rec.SchemaVersion != k.schema:
		return errors.New("only the store can change its versions")
	case k.counted && (rec.Job.NumRows == nil || *rec.Job.NumRows != k.rows):
		return fmt.Errorf("its number of rows is %d and cannot change", k.rows)
	case rec.Job.Status != k.status && !isReachable(k.status, rec.Job.Status):
		return &rowmill.TransitionError{From: k.status, To: rec.Job.Status}
	}
	return nil
}

// isReachable reports whether a job with status from can get the status to, in one or more
// steps. The state machine has no cycles, so the search ends.
func isReachable(from, to rowmill.Status) bool {
	if from.CanBecome(to) {
		return true
	}
	for _, next := range rowmill.Statuses() {
		if from.CanBecome(next) && isReachable(next, to) {
			return true
		}
	}
	return false
}

// NextEpoch returns the epoch of a claim at the time now of the store's clock. before is
// the epoch of the previous claim. The new epoch is the time in ms since 1970, or
// before+1 if that is greater. So two owners never get the same epoch, even if the store
// has lost the first claim.
func NextEpoch(before int64, now time.Time) int64 { return max(before+1, now.UnixMilli()) }
