package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// oneJob is a store with a single record.
type oneJob struct {
	store.Jobs
	rec      store.Record
	refusals []error // errors of the next calls
}

func (s *oneJob) Finish(_ context.Context, f store.Fence, change func(*store.Record) error) (store.Record, error) {
	if len(s.refusals) > 0 {
		err := s.refusals[0]
		s.refusals = s.refusals[1:]
		return store.Record{}, err
	}
	if f.Epoch != s.rec.Epoch {
		return store.Record{}, rowmill.ErrLeaseLost
	}
	rec := s.rec
	if err := change(&rec); err != nil {
		return store.Record{}, err
	}
	s.rec = rec
	return rec, nil
}

func running(status rowmill.Status) *oneJob {
	in, out := int64(1_000_000), int64(500_000)
	s := &oneJob{rec: store.Record{Epoch: 2, Job: rowmill.Job{ID: "job-1", Status: status, JobUsage: rowmill.JobUsage{InputTokens: &in, OutputTokens: &out}}}}
	s.rec.Spec.Model = rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, InputPrice: 1, OutputPrice: 2}
	return s
}

func TestEndsOfRecords(t *testing.T) {
	t.Parallel()
	now, fence := time.Now().UTC(), store.Fence{JobID: "job-1", Epoch: 2}

	s := running(rowmill.StatusRunning)
	rec, err := recordSuccess(t.Context(), s, fence, now, func(r *store.Record) { r.Artifacts = map[string]store.Artifact{"full": {Key: "k", Size: 3}} })
	if err != nil || rec.Job.Status != rowmill.StatusSucceeded || rec.Artifacts["full"].Size != 3 || rec.Job.JobCost == nil || *rec.Job.JobCost != 2 {
		t.Errorf("a success is %+v, %v", rec, err)
	}
	if _, err := recordSuccess(t.Context(), s, fence, now, func(r *store.Record) { r.Artifacts = nil }); err == nil || s.rec.Artifacts == nil {
		t.Error("a job succeeds twice")
	}

	s = running(rowmill.StatusStarting) // from its input alone
	rec, err = recordSuccess(t.Context(), s, fence, now, estimateRecorder(1.5, rowmill.Estimate{}))
	if err != nil || rec.Job.Status != rowmill.StatusSucceeded || *rec.Job.CostEstimate != 1.5 || rec.Job.Estimate == nil {
		t.Errorf("an estimate is %+v, %v", rec, err)
	}

	s = running(rowmill.StatusStarting) // without a price only the tokens are known
	s.rec.Spec.Model.NoPrice = true
	rec, err = recordSuccess(t.Context(), s, fence, now, estimateRecorder(0, rowmill.Estimate{InputTokens: 7}))
	if err != nil || rec.Job.CostEstimate != nil || rec.Job.Estimate == nil || !strings.Contains(rec.Job.Message, "m has no price") {
		t.Errorf("an estimate without a price is %+v, %v", rec, err)
	}

	failure := rowmill.Failf(rowmill.CodeEngineError, "it broke")
	for _, from := range []rowmill.Status{rowmill.StatusPending, rowmill.StatusStarting, rowmill.StatusRunning} {
		rec, err = recordFailure(t.Context(), running(from), fence, failure, now, slog.New(slog.DiscardHandler))
		if err != nil || rec.Job.Status != rowmill.StatusFailed || rec.Job.FailureReason != failure || rec.Job.Message != "it broke" {
			t.Errorf("a failure of a job that is %s is %+v, %v", from, rec, err)
		}
	}
}

// A failure is recorded in the end, with retries, but not without a valid fence.
func TestAFailureIsRecordedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure, log := rowmill.Failf(rowmill.CodeEngineError, "it broke"), slog.New(slog.DiscardHandler)
		s := running(rowmill.StatusRunning)
		for range 40 { // so that the retries take minutes
			s.refusals = append(s.refusals, syscall.ENOSPC)
		}
		if _, err := recordFailure(t.Context(), s, store.Fence{Epoch: 2}, failure, time.Now(), log); err != nil || s.rec.Job.Status != rowmill.StatusFailed {
			t.Errorf("the job is %s: %v", s.rec.Job.Status, err)
		}
		for _, last := range []error{rowmill.ErrLeaseLost, rowmill.ErrTerminal} {
			s := running(rowmill.StatusRunning)
			s.refusals = []error{syscall.ENOSPC, fmt.Errorf("refused: %w", last), syscall.ENOSPC}
			if _, err := recordFailure(t.Context(), s, store.Fence{Epoch: 2}, failure, time.Now(), log); !errors.Is(err, last) || len(s.refusals) != 1 {
				t.Errorf("after %v: %v, and %d refusals are left", last, err, len(s.refusals))
			}
		}
	})
}

func TestInternalFailureMessages(t *testing.T) {
	t.Parallel()
	for err, says := range map[error]string{
		errors.New("anything"):                         "could not continue",
		fmt.Errorf("write: %w", error(syscall.ENOSPC)): "disk of the service is full",
		fmt.Errorf("write: %w", error(syscall.EDQUOT)): "disk of the service is full",
	} {
		f := internalFailure(err)
		if f.Code != rowmill.CodeInternalError || !strings.Contains(f.Message, says) || f.AdditionalContext != err.Error() {
			t.Errorf("%v: %+v", err, f)
		}
	}
}
