package storetest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// reserve sets money aside for a job. It must succeed.
func (s *suite) reserve(f store.Fence, usd, limit float64) store.Record {
	s.Helper()
	rec, err := s.Reserve(s.Context(), f, usd, &limit)
	if err != nil {
		s.Fatalf("reserve %v of %v: %v", usd, limit, err)
	}
	if rec.Reserved != rowmill.MoneyFromUSD(usd) {
		s.Errorf("reserved %v, want %v USD", rec.Reserved, usd)
	}
	s.wantUnchanged(rec)
	return rec
}

// wantOverLimit checks that a reservation is refused with these amounts in USD.
func (s *suite) wantOverLimit(f store.Fence, asked, spent, reserved, limit float64) {
	s.Helper()
	before := s.get(f.JobID)
	_, err := s.Reserve(s.Context(), f, asked, &limit)
	refused, ok := errors.AsType[*store.CostLimitError](err)
	if !ok {
		s.Errorf("reserve %v of %v: %v, want a LimitError", asked, limit, err)
		return
	}
	want := store.CostLimitError{
		Asked: rowmill.MoneyFromUSD(asked), Spent: rowmill.MoneyFromUSD(spent),
		Reserved: rowmill.MoneyFromUSD(reserved), Limit: rowmill.MoneyFromUSD(limit),
	}
	s.wantEqual("refusal", want, *refused)
	s.wantUnchanged(before)
}

// totalsOfCost returns totals that cost usd US dollars with a model from pricedModel.
func totalsOfCost(usd int64) store.RowTotals {
	return store.RowTotals{Rows: 1, InputTokens: 8_000_000 * usd, OutputTokens: 3_000_000 * usd}
}

func testReserve(s *suite) {
	a, b, c := s.createSpendingJob("a", "m"), s.createSpendingJob("a", "m"), s.createSpendingJob("a", "m")
	other := s.createSpendingJob("b", "m")
	before := s.get(a.JobID)
	after := s.reserve(a, 0.1, 0.3)
	before.Reserved, before.Version = after.Reserved, after.Version
	s.wantSame("record: nothing else changes", before, after)
	s.reserve(b, 0.1, 0.3)
	s.wantOverLimit(c, 0.2, 0, 0.2, 0.3)
	s.reserve(c, 0.1, 0.3) // exactly the limit; as floats the sum would exceed it
	s.wantOverLimit(s.createSpendingJob("a", "m"), 1e-12, 0, 0.3, 0.3)
	s.reserve(other, 0.3, 0.3) // another account has its own limit
	s.reopen()
	d := s.createSpendingJob("a", "m")
	s.wantOverLimit(d, 0.1, 0, 0.3, 0.3)
	s.reserve(d, 0.1, 0.5) // the caller may raise the limit
	rec, err := s.Reserve(s.Context(), s.createSpendingJob("a", "m"), 1000, nil)
	if err != nil || rec.Reserved != rowmill.MoneyFromUSD(1000) {
		s.Errorf("reserve without a limit: %v are reserved, %v; want 1000 USD", rec.Reserved, err)
	}
	s.wantOverLimit(s.createSpendingJob("a", "m"), 0.1, 0, 1000.4, 0.5)
}

func testReserveRefuses(s *suite) {
	f := s.createSpendingJob("a", "m")
	before := s.get(f.JobID)
	limit := 5.0
	for _, usd := range []float64{-1, math.NaN()} {
		s.wantError(fmt.Sprintf("%v USD are reserved", usd), errAny)(s.Reserve(s.Context(), f, usd, &limit))
	}
	stale := f
	stale.Epoch--
	s.wantError("with an older epoch", rowmill.ErrLeaseLost)(s.Reserve(s.Context(), stale, 1, &limit))
	s.wantError("for an unknown job", rowmill.ErrNotFound)(s.Reserve(s.Context(), store.Fence{JobID: "job-none", Session: f.Session, Epoch: 1}, 1, &limit))
	s.wantUnchanged(before)
	s.must(s.Cancel(s.Context(), f.JobID, s.start, nil))
	s.wantError("for a cancelled job", rowmill.ErrTerminal)(s.Reserve(s.Context(), f, 1, &limit))
}

// testReserveAgain repeats reservations, as a retry or the next owner of the job does.
func testReserveAgain(s *suite) {
	f := s.createSpendingJob("a", "m")
	s.reserve(f, 4, 5)
	version := s.get(f.JobID).Version
	s.reserve(f, 4, 5)
	if got := s.get(f.JobID).Version; got != version {
		s.Errorf("version %d after a repeat, want %d", got, version)
	}
	s.must(s.CloseSession(s.Context(), f.Session))
	f = s.claim(f.JobID, s.session())
	if got := s.get(f.JobID).Reserved; got != rowmill.MoneyFromUSD(4) {
		s.Errorf("%v reserved after a change of owner, want 4 USD", got)
	}
	s.reserve(f, 4, 5)
	s.reserve(f, 4, 1) // 4 USD are already granted, so the limit of 1 is not checked
	s.reserve(f, 3, 1) // less than the granted amount, so the limit is not checked
	s.wantOverLimit(f, 4, 0, 0, 3.5)
	s.reserve(f, 3.5, 3.5)
	s.wantOverLimit(s.createSpendingJob("a", "m"), 1, 0, 3.5, 4)
	s.reserve(f, 0, 0)
	s.reserve(s.createSpendingJob("a", "m"), 4, 4)
	s.reserve(s.createSpendingJob("a", "m"), 0, 0) // zero is within any limit
}

func testReserveEndsWithTheJob(s *suite) {
	for _, end := range []rowmill.Status{rowmill.StatusSucceeded, rowmill.StatusFailed, rowmill.StatusCancelled} {
		f, estimate := s.createSpendingJob("a", "m"), s.createEstimateJob("a")
		s.update(f, func(r *store.Record) error { r.Job.NumRows = new(int64(0)); return nil })
		for _, f := range []store.Fence{f, estimate} {
			s.reserve(f, 2, 4)
		}
		s.wantOverLimit(s.createSpendingJob("a", "m"), 4, 0, 4, 4)
		for _, f := range []store.Fence{f, estimate} {
			s.end(f, end)
			if got := s.get(f.JobID).Reserved; got != 0 {
				s.Errorf("a job that has %s has %v reserved, want 0", end, got)
			}
		}
		g := s.createSpendingJob("a", "m")
		s.reserve(g, 4, 4)
		s.must(s.Update(s.Context(), g, func(r *store.Record) error { return moveThrough(r, rowmill.StatusFailed) }))
	}
}

// testReserveCountsNothingTwice checks that spent money no longer counts as reserved.
func testReserveCountsNothingTwice(s *suite) {
	f, g := s.createSpendingJob("a", "m"), s.createSpendingJob("a", "m")
	s.reserve(f, 6, 10)
	s.spend(f, "1", totalsOfCost(5))
	s.wantOverLimit(g, 5, 5, 1, 10)
	s.reserve(g, 4, 10)
	s.spend(f, "2", totalsOfCost(2)) // more than the job had reserved
	s.wantOverLimit(s.createSpendingJob("a", "m"), 1, 7, 4, 10)
	s.wantOverLimit(s.createSpendingJob("a", "m"), 1e-12, 7, 4, 10)

	// A job's own spending is part of its reservation.
	s.must(s.Cancel(s.Context(), g.JobID, s.start, nil))
	s.reserve(f, 10, 10)
	limit := 10.0
	_, err := s.Reserve(s.Context(), f, 11, &limit)
	if refused, ok := errors.AsType[*store.CostLimitError](err); !ok || refused.Asked != rowmill.MoneyFromUSD(4) {
		s.Errorf("reserve 11 USD for a job that has spent 7: %v, want a LimitError that asks for the other 4", err)
	}
	s.must(s.Finish(s.Context(), f, func(r *store.Record) error { return moveThrough(r, rowmill.StatusFailed) }))
	s.wantOverLimit(s.createSpendingJob("a", "m"), 4, 7, 0, 10)
	s.reserve(s.createSpendingJob("a", "m"), 3, 10)
}

// testReserveRace lets many jobs reserve at the same time, with money for only some.
func testReserveRace(s *suite) {
	s.spend(s.createSpendingJob("a", "m"), "p", totalsOfCost(1))
	granted := s.countGranted("a", 16, 6, func(refused *store.CostLimitError) {
		if refused.Spent != rowmill.MoneyFromUSD(1) || refused.Reserved != rowmill.MoneyFromUSD(5) {
			s.Errorf("a refusal names %v spent and %v reserved, want 1 and 5 USD", refused.Spent, refused.Reserved)
		}
	})
	if granted != 5 {
		s.Errorf("%d jobs were granted 1 USD each, want 5", granted)
	}
}

// countGranted lets n new jobs of an account reserve 1 USD each at the same time, and returns how
// many are granted. check gets each refusal.
func (s *suite) countGranted(account string, n int, limit float64, check func(*store.CostLimitError)) int {
	s.Helper()
	var fences []store.Fence
	for range n {
		fences = append(fences, s.createSpendingJob(account, "m"))
	}
	errRefused := errors.New("refused")
	return s.countWinners(n, errRefused, func(i int) error {
		_, err := s.Reserve(s.Context(), fences[i], 1, &limit)
		if refused, ok := errors.AsType[*store.CostLimitError](err); ok {
			check(refused)
			return errRefused
		}
		return err
	})
}

// testReserveCrowd lets hundreds of jobs reserve at the same time, like a burst of
// submissions. Each must be granted or refused for money, never for the load.
func testReserveCrowd(s *suite) {
	const crowd = 300
	for _, room := range []int{crowd, crowd / 3} {
		granted := s.countGranted(fmt.Sprint("a", room), crowd, float64(room), func(*store.CostLimitError) {})
		if granted != room {
			s.Errorf("%d of %d jobs were granted 1 USD each of a limit of %d, want %d", granted, crowd, room, room)
		}
	}
}

func testReserveByMonth(s *suite) {
	if s.Sleeps {
		s.Skip("months cannot pass")
	}
	year, month, _ := s.Now().UTC().Date()
	next := time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
	s.Advance(next.Sub(s.Now()) - time.Hour)
	f := s.createSpendingJob("a", "m")
	s.reserve(f, 8, 10)
	s.spend(f, "1", totalsOfCost(5))
	s.wantOverLimit(s.createSpendingJob("a", "m"), 3, 5, 3, 10)
	s.Advance(time.Hour)
	// In a new month the spent money is zero, and reservations remain.
	s.wantOverLimit(s.createSpendingJob("a", "m"), 8, 0, 3, 10)
	s.reserve(s.createSpendingJob("a", "m"), 7, 10)
	s.spend(f, "2", totalsOfCost(1))
	s.wantOverLimit(s.createSpendingJob("a", "m"), 1, 1, 9, 10)
	s.Advance(31 * 24 * time.Hour)
	s.wantOverLimit(s.createSpendingJob("a", "m"), 2, 0, 9, 10)
}
