package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// A write is a method of the contract that changes a record, with its name for messages.
type write struct {
	name string
	do   func(context.Context) error
}

// testWriters lets two nodes write one record. The store must count the writes of each
// node, and refuse a write if the record has fewer writes of the node than were
// acknowledged.
func testWriters(s *suite) {
	ctx := s.Context()
	session := s.session()
	f := store.Fence{JobID: "job-writers", Session: session}
	owner, other := store.NewWriteCounter("owner"), store.NewWriteCounter("other")
	countOf := func(w *store.WriteCounter) int64 { // number of writes by w in the record
		s.Helper()
		marks, err := s.Revisions(ctx, []string{f.JobID}, w.Name())
		s.must(err)
		return marks[0].Writes
	}
	limit, rows := 5.0, int64(10)
	update := write{"update", func(ctx context.Context) error {
		_, err := s.Update(ctx, f, func(r *store.Record) error {
			r.Job.NumRows = &rows
			if r.Job.Status == rowmill.StatusSubmitted {
				return errors.Join(moveThrough(r, rowmill.StatusStarting), moveThrough(r, rowmill.StatusRunning))
			}
			return nil
		})
		return err
	}}
	reserve := write{"reserve", func(ctx context.Context) error { _, err := s.Reserve(ctx, f, 1, &limit); return err }}
	commit := write{"commit", func(ctx context.Context) error {
		return s.CommitParts(ctx, f, []store.Part{{Key: "a", Rows: 4}, {Key: "b", Rows: 6}})
	}}
	replace := write{"replace", func(ctx context.Context) error {
		return s.ReplaceParts(ctx, f, store.Part{Key: "c", Rows: 10, Complete: true})
	}}
	show := write{"show", func(ctx context.Context) error { return s.MarkShownRunning(ctx, f.JobID) }}
	finish := write{"finish", func(ctx context.Context) error {
		_, err := s.Finish(ctx, f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusSucceeded) })
		return err
	}}
	artifact := write{"artifact", func(ctx context.Context) error {
		_, err := s.AddArtifact(ctx, f.JobID, "columns", store.Artifact{Key: "k", Size: 1})
		return err
	}}
	continued := write{"continued", func(ctx context.Context) error { return s.MarkContinued(ctx, f.JobID, "job-2") }}
	keep := write{"keep the input", func(ctx context.Context) error { return s.KeepInput(ctx, f.JobID, time.Now().Add(time.Hour)) }}
	drop := write{"drop the parts", func(ctx context.Context) error { return s.DropParts(ctx, f.JobID) }}
	gone := write{"the input is gone", func(ctx context.Context) error { return s.MarkInputRemoved(ctx, f.JobID, time.Now()) }}
	remove := write{"remove the data", func(ctx context.Context) error { _, err := s.RemoveData(ctx, f.JobID, time.Now()); return err }}
	cancel := write{"cancel", func(ctx context.Context) error { _, err := s.Cancel(ctx, f.JobID, time.Now(), nil); return err }}
	claim := write{"claim", func(ctx context.Context) error {
		rec, err := s.Claim(ctx, f.JobID, session, store.Claim{})
		if err == nil {
			f.Epoch = rec.Epoch
		}
		return err
	}}
	release := write{"release", func(ctx context.Context) error { return s.Release(ctx, f) }}

	// counted runs writes with the writer w. Each must count as one write of w in the
	// record.
	counted := func(w *store.WriteCounter, writes ...write) {
		s.Helper()
		for _, write := range writes {
			before := countOf(w)
			if err := write.do(store.WithWriteCounter(ctx, w)); err != nil {
				s.Fatalf("%s: %v", write.name, err)
			}
			if got := countOf(w); got != before+1 || w.AckedWrites() != got {
				s.Errorf("after %s the record has %d writes of the writer, and the writer knows of %d; want %d", write.name, got, w.AckedWrites(), before+1)
			}
		}
	}
	// refused runs writes with the writer w after one more write was acknowledged to w
	// than the record has. Each must fail with ErrLostWrites.
	refused := func(w *store.WriteCounter, writes ...write) {
		s.Helper()
		held, before := countOf(w), s.get(f.JobID)
		w.Ack(held + 1)
		for _, write := range writes {
			s.wantError(fmt.Sprintf("%s after a write of its writer was lost", write.name), store.ErrLostWrites)(write.do(store.WithWriteCounter(ctx, w)))
		}
		s.wantUnchanged(before)
		w.ResetAcked(held)
	}
	counted(other, write{"create", func(ctx context.Context) error {
		_, _, err := s.Create(ctx, NewRecord(f.JobID, "a", "row"), nil)
		return err
	}})
	refused(other, claim, cancel)
	counted(owner, claim, release, claim, update, reserve, commit)
	refused(owner, update, finish, reserve, commit, replace, release)
	counted(owner, replace)
	s.must(replace.do(store.WithWriteCounter(ctx, owner))) // a repeat, which changes nothing
	counted(other, show)
	refused(other, cancel)
	counted(owner, finish)
	refused(other, artifact, continued, keep, drop, remove)
	counted(other, artifact, continued, keep, drop, gone, remove)
	s.must(drop.do(store.WithWriteCounter(ctx, other))) // a repeat, which changes nothing
	for name, want := range map[string]int64{"owner": 8, "other": 8, "unknown": 0} {
		if got := countOf(store.NewWriteCounter(name)); got != want {
			s.Errorf("the record has %d writes of writer %s, want %d", got, name, want)
		}
	}
	s.must(show.do(ctx)) // without a writer
}
