package records

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// mergedAway is the value in table partkeys for a part that was merged into a complete part.
// The key of the part stays in the table, so that a late repeat of the part's commit has no
// effect.
var mergedAway = []byte{0}

// partsPrefix returns the prefix of a job's keys in tableParts and tablePartKeys.
func partsPrefix(jobID string) []byte { return []byte(jobID + "\x00") }

// shardPrefix returns the prefix of a shard's keys in tableParts.
func shardPrefix(jobID string, shard int) []byte {
	return binary.BigEndian.AppendUint32(partsPrefix(jobID), uint32(shard))
}

// A partRecord is the JSON form of a part in table parts.
type partRecord struct {
	store.Part
	Lost bool `json:"lost,omitempty"` // MarkPartsLost has marked the part as lost
}

// scanParts iterates over the parts whose keys begin with a prefix, in key order, without the lost
// parts.
func (t *tx) scanParts(prefix []byte) iter.Seq2[store.Part, error] {
	return func(yield func(store.Part, error) bool) {
		for p, err := range t.scanAllParts(prefix) {
			if !p.Lost && !yield(p.Part, err) {
				return
			}
		}
	}
}

// scanAllParts is like scanParts, but includes the lost parts.
func (t *tx) scanAllParts(prefix []byte) iter.Seq2[partRecord, error] {
	return func(yield func(partRecord, error) bool) {
		for e, err := range t.Scan(kv.PrefixRange(tableParts, prefix)) {
			var p partRecord
			if err == nil {
				if err = json.Unmarshal(e.Value, &p); err != nil {
					err = fmt.Errorf("decode a part record: %w", err)
				}
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// addPart writes the record of a new part. version is the version of the job's record
// after the commit, and i is the index of the part in this commit.
func (t *tx) addPart(jobID string, version int64, i int, p store.Part) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode part %s: %w", p.Key, err)
	}
	key := binary.BigEndian.AppendUint64(shardPrefix(jobID, p.Shard), uint64(version))
	key = binary.BigEndian.AppendUint32(key, uint32(i))
	t.Put(tableParts, key, raw)
	t.Put(tablePartKeys, append(partsPrefix(jobID), p.Key...), key[len(jobID)+1:])
	return nil
}

// CommitParts stores parts, and adds their totals to the ledger and to the progress of the
// job.
func (s *Store) CommitParts(ctx context.Context, f store.Fence, parts []store.Part) error {
	for _, p := range parts {
		if err := p.Check(); err != nil {
			return fmt.Errorf("commit parts of job %s: %w", f.JobID, err)
		}
	}
	return s.write(ctx, func(t *tx) error {
		before, err := t.readOwnedHeader(f)
		if err != nil {
			return fmt.Errorf("commit parts: %w", err)
		}
		after, added := before, 0
		var done, ran store.RowTotals // totals of all new parts, and of the new parts that this job ran itself
		for _, p := range parts {
			fresh, err := t.IsAbsent(tablePartKeys, append(partsPrefix(f.JobID), p.Key...))
			if err != nil {
				return err
			}
			if !fresh {
				restored, err := t.restorePart(f.JobID, p)
				if err != nil {
					return err
				}
				if restored {
					after.Lost = after.Lost.Minus(p.Totals)
					p.Totals.InputTokens, p.Totals.OutputTokens = 0, 0 // the tokens of lost parts count as used
					done = done.Plus(p.Totals)
					added++
				}
				continue
			}
			if err := t.addPart(f.JobID, before.Version+1, added, p); err != nil {
				return err
			}
			added++
			done = done.Plus(p.Totals)
			if !p.Carried || p.Unpaid {
				ran = ran.Plus(p.Totals)
			}
		}
		if added == 0 {
			return nil
		}
		t.addToLedger(before, ran)
		addProgress(&after.Job, done)
		if ran.Rows > 0 {
			after.Claims = nil
		}
		return t.saveHeader(before, &after)
	})
}

// addProgress adds the totals of new parts to the progress fields of a job.
func addProgress(j *rowmill.Job, added store.RowTotals) {
	j.RowsDone += added.Rows
	j.FailedRows += added.Failed
	j.TruncatedRows += added.TruncatedRows
	j.TruncatedOutputs += added.TruncatedOutputs
	j.DeduplicatedRows += added.Deduplicated
	paid := progressTotals(j).Plus(added)
	j.InputTokens, j.OutputTokens = &paid.InputTokens, &paid.OutputTokens
}

// ReplaceParts replaces the parts of a shard with the complete part. It changes nothing
// when the complete part is stored already, or was itself replaced.
func (s *Store) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	if err := complete.Check(); err != nil {
		return fmt.Errorf("replace parts of job %s: %w", f.JobID, err)
	}
	if !complete.Complete {
		return fmt.Errorf("replace parts of job %s, shard %d: part %s is not complete", f.JobID, complete.Shard, complete.Key)
	}
	return s.write(ctx, func(t *tx) error {
		before, err := t.readOwnedHeader(f)
		if err != nil {
			return fmt.Errorf("replace parts: %w", err)
		}
		known, err := t.Get(tablePartKeys, append(partsPrefix(f.JobID), complete.Key...))
		if err != nil || bytes.Equal(known, mergedAway) {
			return err
		}
		rows, merged := int64(0), 0
		for p, err := range t.scanParts(shardPrefix(f.JobID, complete.Shard)) {
			if err != nil {
				return err
			}
			if p.Complete && p.Key == complete.Key {
				return nil
			}
			place, err := t.Get(tablePartKeys, append(partsPrefix(f.JobID), p.Key...))
			if err != nil {
				return err
			}
			rows, merged = rows+p.Rows, merged+1
			t.Delete(tableParts, append(partsPrefix(f.JobID), place...))
			t.Put(tablePartKeys, append(partsPrefix(f.JobID), p.Key...), mergedAway)
		}
		if merged == 0 || rows != complete.Rows {
			return fmt.Errorf("replace parts of job %s, shard %d: %d parts hold %d rows, but the complete part holds %d: %w",
				f.JobID, complete.Shard, merged, rows, complete.Rows, rowmill.ErrConflict)
		}
		if err := t.addPart(f.JobID, before.Version+1, 0, complete); err != nil {
			return err
		}
		after := before
		after.Claims = nil
		return t.saveHeader(before, &after)
	})
}

// ListParts returns a job's parts by shard, then in the order of commit.
func (s *Store) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	return s.listParts(ctx, jobID, false)
}

// LostParts returns a job's lost parts.
func (s *Store) LostParts(ctx context.Context, jobID string) ([]store.Part, error) {
	return s.listParts(ctx, jobID, true)
}

func (s *Store) listParts(ctx context.Context, jobID string, lost bool) ([]store.Part, error) {
	return viewList(ctx, s, "list parts", func(t *tx) (parts []store.Part, err error) {
		if _, err := t.readHeader(jobID); err != nil {
			return nil, err
		}
		for p, err := range t.scanAllParts(partsPrefix(jobID)) {
			if err := cmp.Or(err, ctx.Err()); err != nil {
				return nil, err
			}
			if p.Lost == lost {
				parts = append(parts, p.Part)
			}
		}
		return parts, nil
	})
}

// MarkPartsLost marks the records of parts as lost, because their objects cannot be read. It
// computes the progress fields from all parts, so that a repeat after a repeated
// CommitParts ends with the same fields.
func (s *Store) MarkPartsLost(ctx context.Context, f store.Fence, keys []string, change func(*store.Record)) (lost store.RowTotals, err error) {
	err = s.write(ctx, func(t *tx) error {
		t.prefetchRecord(f.JobID)
		before, err := t.readHeaderForWrite(f.JobID)
		if err == nil && !before.Job.Status.IsTerminal() {
			before, err = t.readOwnedHeader(f)
		}
		if err != nil {
			return err
		}
		if before.Job.Status == rowmill.StatusSucceeded {
			return fmt.Errorf("job %s has succeeded, so its parts cannot be lost: %w", f.JobID, rowmill.ErrConflict)
		}
		rec, err := t.completeRecord(before)
		if err != nil {
			return err
		}
		newlyLost, err := t.markPartsLost(&rec, keys)
		if lost = rec.Lost; err != nil || !newlyLost && progressTotals(&rec.Job) == progressTotals(&before.Job) {
			return err
		}
		if newlyLost && change != nil {
			change(&rec)
		}
		rec.Version++
		return t.saveRecord(&before, rec, before.Account)
	})
	if err != nil {
		return store.RowTotals{}, fmt.Errorf("lose parts: %w", err)
	}
	return lost, nil
}

// markPartsLost marks the parts with these keys as lost and sets the progress fields of the
// job. newlyLost is true if at least one part was not lost before.
func (t *tx) markPartsLost(rec *store.Record, keys []string) (newlyLost bool, err error) {
	job, id := &rec.Job, rec.Job.ID
	var kept, lost store.RowTotals
	for p, err := range t.scanAllParts(partsPrefix(id)) {
		if err != nil {
			return false, err
		}
		if !p.Lost && slices.Contains(keys, p.Key) {
			if err := t.markPartLost(id, p.Part); err != nil {
				return false, err
			}
			if p.Carried {
				job.RowsTakenOver -= p.Rows
			}
			p.Lost, newlyLost = true, true
		}
		if p.Lost {
			lost = lost.Plus(p.Totals)
		} else {
			kept = kept.Plus(p.Totals)
		}
	}
	rec.Lost = lost
	job.RowsDone, job.FailedRows, job.DeduplicatedRows = kept.Rows, kept.Failed, kept.Deduplicated
	job.TruncatedRows, job.TruncatedOutputs = kept.TruncatedRows, kept.TruncatedOutputs
	if paid := kept.Plus(lost); job.InputTokens != nil && job.OutputTokens != nil {
		job.InputTokens, job.OutputTokens = &paid.InputTokens, &paid.OutputTokens
	}
	return newlyLost, nil
}

// progressTotals returns the progress fields of a job as Totals.
func progressTotals(j *rowmill.Job) store.RowTotals {
	t := store.RowTotals{
		Rows: j.RowsDone, Failed: j.FailedRows, TruncatedRows: j.TruncatedRows, TruncatedOutputs: j.TruncatedOutputs, Deduplicated: j.DeduplicatedRows,
	}
	if j.InputTokens != nil && j.OutputTokens != nil {
		t.InputTokens, t.OutputTokens = *j.InputTokens, *j.OutputTokens
	}
	return t
}

// restorePart records that a carried part is not lost any more: its object was written again
// under its key. It reports whether the part was lost.
func (t *tx) restorePart(jobID string, p store.Part) (bool, error) {
	if !p.Carried {
		return false, nil
	}
	place, err := t.Get(tablePartKeys, append(partsPrefix(jobID), p.Key...))
	if err != nil || bytes.Equal(place, mergedAway) {
		return false, err
	}
	key := append(partsPrefix(jobID), place...)
	stored, err := t.Get(tableParts, key)
	if err != nil {
		return false, err
	}
	var was partRecord
	if err := json.Unmarshal(stored, &was); err != nil {
		return false, fmt.Errorf("decode a part record: %w", err)
	}
	if !was.Lost {
		return false, nil
	}
	raw, err := jsonpreserve.Rewrite(stored, partRecord{Part: p})
	if err != nil {
		return false, fmt.Errorf("encode part %s: %w", p.Key, err)
	}
	t.Put(tableParts, key, raw)
	return true, nil
}

// markPartLost marks the record of one part as lost.
func (t *tx) markPartLost(jobID string, p store.Part) error {
	place, err := t.Get(tablePartKeys, append(partsPrefix(jobID), p.Key...))
	if err != nil {
		return err
	}
	key := append(partsPrefix(jobID), place...)
	stored, err := t.Get(tableParts, key)
	if err != nil {
		return err
	}
	raw, err := jsonpreserve.Rewrite(stored, partRecord{p, true})
	if err != nil {
		return fmt.Errorf("encode part %s: %w", p.Key, err)
	}
	t.Put(tableParts, key, raw)
	return nil
}

// dropChunk is the largest number of keys that one transaction removes. The removal takes
// a few milliseconds, so that other writers hardly wait.
const dropChunk = 2048

// DropParts removes the part records of a job that has ended, in several transactions if
// there are many.
func (s *Store) DropParts(ctx context.Context, jobID string) error {
	for more := true; more; {
		err := s.write(ctx, func(t *tx) error {
			h, err := t.readHeaderForWrite(jobID)
			if err != nil {
				return err
			}
			if !h.Job.Status.IsTerminal() {
				return fmt.Errorf("job %s is %s: %w", jobID, h.Job.Status, rowmill.ErrConflict)
			}
			more = false
			dropped := 0
			for _, table := range []kv.Table{tableParts, tablePartKeys} {
				n, err := t.dropPrefixChunk(table, partsPrefix(jobID))
				if err != nil {
					return err
				}
				dropped += n
				more = more || n == dropChunk
			}
			if dropped == 0 {
				return nil
			}
			after := h
			return t.saveHeader(h, &after)
		})
		if err != nil {
			return fmt.Errorf("drop parts: %w", err)
		}
	}
	return nil
}

// dropPrefixChunk removes up to dropChunk keys with a prefix from a table, also damaged entries.
// It returns the number of removed keys.
func (t *tx) dropPrefixChunk(table kv.Table, prefix []byte) (n int, err error) {
	for e, err := range t.Scan(kv.PrefixRange(table, prefix)) {
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return 0, err
		}
		t.Delete(table, e.Key)
		if n++; n == dropChunk {
			break
		}
	}
	return n, nil
}
