package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// gone is the place of a part that was merged into a complete one: its key
// stays known, so that a late repeat of its commit does nothing.
var gone = []byte{0}

// partsOf is the prefix of a job's parts, and of their keys.
func partsOf(jobID string) []byte { return []byte(jobID + "\x00") }

// shardOf is the prefix of a shard's parts.
func shardOf(jobID string, shard int) []byte {
	return binary.BigEndian.AppendUint32(partsOf(jobID), uint32(shard))
}

// eachPart walks parts in the order of their keys. visit must not change the
// bucket.
func (t *tx) eachPart(prefix []byte, visit func(key []byte, p store.Part) error) error {
	c := t.Bucket(bucketParts).Cursor()
	for key, raw := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, raw = c.Next() {
		var p store.Part
		if err := json.Unmarshal(raw, &p); err != nil {
			return fmt.Errorf("decode a part record: %w", err)
		}
		if err := visit(key, p); err != nil {
			return err
		}
	}
	return nil
}

// addPart appends a part to its shard.
func (t *tx) addPart(jobID string, p store.Part) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode part %s: %w", p.Key, err)
	}
	sequence, err := t.Bucket(bucketParts).NextSequence()
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(shardOf(jobID, p.Shard), sequence)
	if err := t.put(bucketParts, key, raw); err != nil {
		return err
	}
	return t.put(bucketPartKeys, append(partsOf(jobID), p.Key...), key[len(jobID)+1:])
}

// CommitParts records parts, what they add to the ledger, and the totals over
// all committed rows. Totals that are behind the record's come from a late
// repeat and lower nothing.
func (s *Store) CommitParts(ctx context.Context, f store.Fence, parts []store.Part, totals store.Totals) error {
	for _, p := range parts {
		if err := p.Check(); err != nil {
			return fmt.Errorf("commit parts of job %s: %w", f.JobID, err)
		}
	}
	return s.write(ctx, func(t *tx) error {
		before, err := s.fenced(t, f)
		if err != nil {
			return fmt.Errorf("commit parts: %w", err)
		}
		added := 0
		var fresh store.Totals // of the parts added
		for _, p := range parts {
			if t.get(bucketPartKeys, append(partsOf(f.JobID), p.Key...)) != nil {
				continue
			}
			if err := t.addPart(f.JobID, p); err != nil {
				return err
			}
			added++
			if !p.Carried {
				fresh = fresh.Plus(p.Totals)
			}
		}
		if err := t.charge(before, fresh, s.config.Clock()); err != nil {
			return fmt.Errorf("commit parts: %w", err)
		}
		after := before
		if !raise(&after.Job, totals) && added == 0 {
			return nil
		}
		if fresh.Rows > 0 {
			after.Adopters = nil
		}
		after.Version++
		return t.saveHeader(before, after)
	})
}

// raise sets the progress fields of a job and reports whether any has grown.
func raise(j *rowmill.Job, totals store.Totals) bool {
	grown := false
	lift := func(from, to int64) int64 {
		if to > from {
			grown = true
			return to
		}
		return from
	}
	point := func(from *int64, to int64) *int64 {
		if from == nil {
			grown = true
			return &to
		}
		lifted := lift(*from, to)
		return &lifted
	}
	j.RowsDone = lift(j.RowsDone, totals.Rows)
	j.FailedRows = lift(j.FailedRows, totals.Failed)
	j.TruncatedRows = lift(j.TruncatedRows, totals.TruncatedRows)
	j.TruncatedOutputs = lift(j.TruncatedOutputs, totals.TruncatedOutputs)
	j.DeduplicatedRows = lift(j.DeduplicatedRows, totals.Deduplicated)
	j.InputTokens = point(j.InputTokens, totals.InputTokens)
	j.OutputTokens = point(j.OutputTokens, totals.OutputTokens)
	return grown
}

// ReplaceParts swaps the parts of a shard for the complete one. A complete
// part that is recorded already, or has been replaced in turn, is left alone.
func (s *Store) ReplaceParts(ctx context.Context, f store.Fence, complete store.Part) error {
	if err := complete.Check(); err != nil {
		return fmt.Errorf("replace parts of job %s: %w", f.JobID, err)
	}
	if !complete.Complete {
		return fmt.Errorf("replace parts of job %s, shard %d: part %s is not complete", f.JobID, complete.Shard, complete.Key)
	}
	return s.write(ctx, func(t *tx) error {
		before, err := s.fenced(t, f)
		if err != nil {
			return fmt.Errorf("replace parts: %w", err)
		}
		if bytes.Equal(t.get(bucketPartKeys, append(partsOf(f.JobID), complete.Key...)), gone) {
			return nil
		}
		var rows int64
		var keys [][]byte
		var names []string
		done := false
		err = t.eachPart(shardOf(f.JobID, complete.Shard), func(key []byte, p store.Part) error {
			rows += p.Rows
			keys = append(keys, bytes.Clone(key))
			names = append(names, p.Key)
			done = done || p.Complete && p.Key == complete.Key
			return nil
		})
		if err != nil || done {
			return err
		}
		if len(keys) == 0 || rows != complete.Rows {
			return fmt.Errorf("replace parts of job %s, shard %d: %d parts hold %d rows, the complete one %d: %w",
				f.JobID, complete.Shard, len(keys), rows, complete.Rows, rowmill.ErrConflict)
		}
		for i, key := range keys {
			if err := t.del(bucketParts, key); err != nil {
				return err
			}
			if err := t.put(bucketPartKeys, append(partsOf(f.JobID), names[i]...), gone); err != nil {
				return err
			}
		}
		if err := t.addPart(f.JobID, complete); err != nil {
			return err
		}
		after := before
		after.Adopters = nil
		after.Version++
		return t.saveHeader(before, after)
	})
}

// ListParts returns a job's parts by shard, then in the order of commit.
func (s *Store) ListParts(ctx context.Context, jobID string) ([]store.Part, error) {
	var parts []store.Part
	err := s.view(ctx, func(t *tx) error {
		if _, err := t.header(jobID); err != nil {
			return err
		}
		return t.eachPart(partsOf(jobID), func(_ []byte, p store.Part) error {
			parts = append(parts, p)
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list parts: %w", err)
	}
	return parts, nil
}

// dropChunk is how many keys one commit of DropParts removes: a few
// milliseconds' work, so that other writers do not notice.
const dropChunk = 2048

// DropParts removes the part records of a job that is over.
func (s *Store) DropParts(ctx context.Context, jobID string) error {
	for more := true; more; {
		err := s.write(ctx, func(t *tx) error {
			h, err := t.writable(jobID)
			if err != nil {
				return err
			}
			if !h.Job.Status.Terminal() {
				return fmt.Errorf("job %s is %s: %w", jobID, h.Job.Status, rowmill.ErrConflict)
			}
			more = false
			for _, bucket := range [][]byte{bucketParts, bucketPartKeys} {
				full, err := t.dropSome(bucket, partsOf(jobID))
				if err != nil {
					return err
				}
				more = more || full
			}
			if !t.wrote {
				return nil
			}
			after := h
			after.Version++
			return t.saveHeader(h, after)
		})
		if err != nil {
			return fmt.Errorf("drop parts: %w", err)
		}
	}
	return nil
}

// dropSome removes up to dropChunk keys and reports whether there may be more.
func (t *tx) dropSome(bucket, prefix []byte) (more bool, err error) {
	var keys [][]byte
	c := t.Bucket(bucket).Cursor()
	for key, _ := c.Seek(prefix); bytes.HasPrefix(key, prefix) && len(keys) < dropChunk; key, _ = c.Next() {
		keys = append(keys, bytes.Clone(key))
	}
	for _, key := range keys {
		if err := t.del(bucket, key); err != nil {
			return false, err
		}
	}
	return len(keys) == dropChunk, nil
}
