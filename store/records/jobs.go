package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// An idemRecord is the stored form of an idempotency key: the job that was created with
// it.
type idemRecord struct {
	JobID    string    `json:"job_id"`
	BodyHash string    `json:"body_hash"`
	Expires  time.Time `json:"expires"`
}

// idemSweep is the number of expired idempotency keys that a submission removes. It is
// more than one, so that the number of expired keys shrinks, and small, so that no
// submission is slow.
const idemSweep = 4

// Create stores a pending job.
func (s *Store) Create(ctx context.Context, rec store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	if err := store.CheckNew(rec, idem); err != nil {
		return store.Record{}, false, fmt.Errorf("create job %s: %w", rec.Job.ID, err)
	}
	rec.SchemaVersion, rec.Version, rec.Epoch, rec.Session = store.SchemaVersion, 1, 0, ""
	spec, err := encodeSpec(nil, rec.Spec)
	if err != nil {
		return store.Record{}, false, fmt.Errorf("create job %s: %w", rec.Job.ID, err)
	}
	var stored store.Record
	var existed bool
	err = s.write(ctx, func(t *tx) error {
		first, found, err := t.findByIdempotency(rec.Spec.Account, idem)
		if err != nil {
			return err
		}
		if found {
			stored, existed = first, true
			return nil
		}
		if stored, existed, err = t.recordContinuation(rec); existed || err != nil {
			return err
		}
		id := []byte(rec.Job.ID)
		if _, err := t.IsAbsent(tableTexts, id); err != nil { // so that reading the record back below needs no extra request
			return err
		}
		switch free, err := t.IsAbsent(tableJobs, id); {
		case err != nil:
			return err
		case !free:
			return fmt.Errorf("create job %s: its id is taken: %w", rec.Job.ID, rowmill.ErrConflict)
		}
		t.Put(tableSpecs, id, spec)
		t.addToAccountLists(rec)
		if err := t.saveRecord(nil, rec, rec.Spec.Account); err != nil {
			return err
		}
		if idem != nil {
			if err := t.storeIdem(rec.Spec.Account, rec.Job.ID, *idem); err != nil {
				return err
			}
		}
		// Read the record back, so that the caller gets the same as later readers.
		if stored, err = t.readRecord(rec.Job.ID); err != nil {
			return err
		}
		existed = false
		return nil
	})
	if err != nil {
		return store.Record{}, false, err
	}
	return stored, existed, nil
}

// recordContinuation is for a job that continues an ended job. It records in the ended job
// that rec continues it. If another job already continues the ended job, it returns this
// other job and true.
func (t *tx) recordContinuation(rec store.Record) (first store.Record, found bool, err error) {
	c := rec.Spec.Continue
	if c == nil {
		return first, false, nil
	}
	// The writer in the context counts the writes to rec, not to the ended job.
	other := &tx{Tx: t.Tx, log: t.log}
	before, err := other.readCheckedHeader(c.Job)
	if errors.Is(err, rowmill.ErrNotFound) {
		return first, false, nil // the owner of rec reports that the ended job does not exist
	}
	if err != nil {
		return first, false, err
	}
	if by := before.Job.ContinuedBy; by != nil && *by != rec.Job.ID && !c.AllowDuplicate {
		first, err = other.readRecord(*by)
		if !errors.Is(err, rowmill.ErrNotFound) {
			return first, err == nil, err
		}
		before.Job.ContinuedBy = nil // the store has lost the job that continued the ended job
	}
	after := before
	changed, err := after.MarkContinued(rec.Job.ID)
	if errors.Is(err, rowmill.ErrConflict) {
		return first, false, nil // the store has lost the end of the job; the owner of rec waits until the end is written again
	}
	if changed {
		err = other.saveHeader(before, &after)
	}
	return first, false, err
}

// addToAccountLists adds a job to the lists of its account: all jobs and, for a batch, the
// batches of its dialect.
func (t *tx) addToAccountLists(rec store.Record) {
	if raw := rec.Spec.Raw; raw != nil {
		t.Put(tableBatches, append(batchListPrefix(rec.Spec.Account, raw.Dialect), rec.Job.ID...), nil)
	}
	t.Put(tableAccounts, accountTimeKey(rec.Spec.Account, rec.Job.Created, rec.Job.ID), nil)
}

// readRecord reads a record with its texts and specification.
func (t *tx) readRecord(id string) (store.Record, error) {
	t.prefetchRecord(id)
	h, err := t.readHeader(id)
	if err != nil {
		return store.Record{}, err
	}
	return t.completeRecord(h)
}

func idemKey(account, key string) []byte { return []byte(account + "\x00" + key) }

// readIdem reads the record of an idempotency key, expired or not.
func (t *tx) readIdem(key []byte) (known idemRecord, found bool, err error) {
	raw, err := t.Get(tableIdem, key)
	if err == nil && raw != nil {
		found, err = true, json.Unmarshal(raw, &known)
	}
	if err != nil {
		return known, false, fmt.Errorf("read an idempotency key: %w", err)
	}
	return known, found, nil
}

// findByIdempotency finds the record that was created with an idempotency key. It finds nothing
// when idem is nil.
func (t *tx) findByIdempotency(account string, idem *store.Idempotency) (store.Record, bool, error) {
	if idem == nil {
		return store.Record{}, false, nil
	}
	known, found, err := t.readIdem(idemKey(account, idem.Key))
	if err != nil || !found || !t.Now().Before(known.Expires) {
		return store.Record{}, false, err
	}
	if known.BodyHash != idem.BodyHash {
		return store.Record{}, false, fmt.Errorf("the idempotency key was used with another body, for job %s: %w", known.JobID, rowmill.ErrConflict)
	}
	rec, err := t.readRecord(known.JobID)
	return rec, err == nil, err
}

// storeIdem stores an idempotency key for a job and removes a few expired keys.
func (t *tx) storeIdem(account, jobID string, idem store.Idempotency) error {
	if err := t.sweepIdem(); err != nil {
		return err
	}
	key := idemKey(account, idem.Key)
	old, found, err := t.readIdem(key)
	if err != nil {
		return err
	}
	if found { // it has expired, else findByIdempotency would have found it
		t.Delete(tableIdemAge, append(encodeTime(old.Expires), key...))
	}
	known := idemRecord{JobID: jobID, BodyHash: idem.BodyHash, Expires: t.Now().Add(idem.TTL).UTC()}
	return t.putIdem(key, known)
}

// putIdem writes an idempotency key and its index entry.
func (t *tx) putIdem(key []byte, known idemRecord) error {
	raw, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encode an idempotency key: %w", err)
	}
	t.Put(tableIdem, key, raw)
	t.Put(tableIdemAge, append(encodeTime(known.Expires), key...), nil)
	return nil
}

// sweepIdem removes up to idemSweep idempotency keys that have expired.
func (t *tx) sweepIdem() error {
	swept := 0
	for e, err := range t.scanUndamaged(kv.Range{Table: tableIdemAge, To: keyAfterTime(nil, t.Now())}) {
		if err != nil {
			return err
		}
		key := bytes.Clone(e.Key[positionBytes:])
		known, found, err := t.readIdem(key)
		if err != nil {
			return err
		}
		if found && !t.Now().Before(known.Expires) {
			t.Delete(tableIdem, key)
		}
		t.Delete(tableIdemAge, e.Key)
		if swept++; swept == idemSweep {
			break
		}
	}
	return nil
}

// Lookup returns the record that was created with an idempotency key.
func (s *Store) Lookup(ctx context.Context, account string, idem store.Idempotency) (store.Record, error) {
	return viewResult(ctx, s, func(t *tx) (store.Record, error) {
		rec, found, err := t.findByIdempotency(account, &idem)
		if err == nil && !found {
			err = fmt.Errorf("idempotency key: %w", rowmill.ErrNotFound)
		}
		return rec, err
	})
}

// Get returns a record.
func (s *Store) Get(ctx context.Context, jobID string) (store.Record, error) {
	return viewResult(ctx, s, func(t *tx) (store.Record, error) { return t.readRecord(jobID) })
}

// Head returns the part of a record that clients see.
func (s *Store) Head(ctx context.Context, jobID string) (*store.JobHead, error) {
	return viewResult(ctx, s, func(t *tx) (*store.JobHead, error) { return s.readHead(t, jobID) })
}

// A revisionFields holds the members of a header that Revisions needs. The other members are not
// decoded, because Revisions is called each second for many jobs.
type revisionFields struct {
	Job struct {
		Status rowmill.Status `json:"status"`
	} `json:"job"`
	Version int64            `json:"version"`
	Session string           `json:"session"`
	Epoch   int64            `json:"epoch"`
	Writers map[string]int64 `json:"writers"`
}

// Revisions returns the revisions of records.
func (s *Store) Revisions(ctx context.Context, jobIDs []string, writer string) ([]store.Revision, error) {
	return viewList(ctx, s, "read the revisions of jobs", func(t *tx) ([]store.Revision, error) {
		marks := make([]store.Revision, len(jobIDs))
		t.prefetchIDs(jobIDs, tableJobs)
		switch found, err := layoutOf(t); {
		case err != nil:
			return nil, err
		case found == 0:
			return nil, fmt.Errorf("the store has lost all records: restore it, or restart the nodes: %w", rowmill.ErrUnavailable)
		}
		for i, id := range jobIDs {
			raw, err := t.Get(tableJobs, []byte(id))
			switch {
			case t.logIfDamaged(err):
				continue
			case err != nil:
				return nil, err
			case raw == nil:
				continue
			}
			var h revisionFields
			if err := jsonpreserve.Decode(raw, &h); err != nil {
				return nil, fmt.Errorf("decode the record of job %s: %w", id, err)
			}
			marks[i] = store.Revision{Version: h.Version, Session: h.Session, Epoch: h.Epoch, Status: h.Job.Status, Writes: h.Writers[writer]}
		}
		return marks, ctx.Err()
	})
}

// ListActiveJobs returns, for each account, ids of jobs that have not ended and of jobs that were
// created after since.
func (s *Store) ListActiveJobs(ctx context.Context, accounts []string, since time.Time, limit int) ([][]string, error) {
	return viewList(ctx, s, "find open jobs", func(t *tx) ([][]string, error) {
		found := make([][]string, len(accounts))
		var ranges []kv.Range
		for _, account := range accounts {
			first := []byte(account + "\x00")
			newest := kv.Range{From: first, To: []byte(account + "\x01"), Reverse: true}
			for _, of := range []struct {
				table kv.Table
				from  []byte
				limit int
			}{{tableOwned, first, 0}, {tableWaiting, first, limit}, {tableAccounts, append(first, encodeTime(since)...), limit}} {
				r := newest
				r.Table, r.From, r.Limit = of.table, of.from, of.limit
				if of.table == tableOwned || limit > 0 {
					ranges = append(ranges, r)
				}
			}
		}
		at := map[string]int{}
		for i, account := range accounts {
			at[account] = i
		}
		for e, err := range t.scanUndamaged(ranges...) {
			if err != nil {
				return nil, err
			}
			account, _, id, ok := splitAccountTimeKey(e.Key)
			if !ok {
				return nil, fmt.Errorf("a key of table %s is cut off", e.Table)
			}
			found[at[account]] = append(found[at[account]], id)
		}
		for i := range found {
			slices.Sort(found[i])
			found[i] = slices.Compact(found[i])
		}
		return found, ctx.Err()
	})
}

// pageStart returns the upper bound (excluded) of the keys of a page. A page begins with
// the newest entry below this key; the keys are in the order of accountTimeKey.
func pageStart(account string, limit int, cursor string) ([]byte, error) {
	after, err := store.DecodePageCursor(limit, cursor, positionBytes)
	switch {
	case err != nil:
		return nil, err
	case after == nil:
		return []byte(account + "\x01"), nil // above all keys of the account
	}
	return append([]byte(account+"\x00"), after...), nil
}
