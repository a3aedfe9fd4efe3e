package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// testNamesApart uses names that would become equal if a store joined names without a
// separator that no name contains.
func testNamesApart(s *suite) {
	accounts := []string{"a", "a:b", "a:b:c", "a b", "a\nb", "ä", "job", ":"}
	byAccount := map[string]string{}
	for i, account := range accounts {
		f := s.createSpendingJob(account, "m:"+account)
		byAccount[account] = f.JobID
		s.spend(f, "p: \n"+account, store.RowTotals{Rows: int64(i + 1)})
		s.must(s.Release(s.Context(), f))
	}
	for i, account := range accounts {
		if jobs, _, err := s.List(s.Context(), account, 10, ""); err != nil || !slices.Equal(ids(jobs), []string{byAccount[account]}) {
			s.Errorf("account %q has the jobs %v, %v; want only %s", account, ids(jobs), err, byAccount[account])
		}
		s.wantParts(byAccount[account], "p: \n"+account)
		usage := s.usage(account)
		if len(usage) != 1 || usage[0].Model != "m:"+account || usage[0].Totals.Rows != int64(i+1) {
			s.Errorf("account %q used %+v, want %d rows of one model", account, usage, i+1)
		}
	}
	found, err := s.Orphans(s.Context(), 100)
	if err != nil || len(found) != len(accounts) {
		s.Errorf("the orphans are %v, %v; want one of each account", found, err)
	}
	for _, o := range found {
		if byAccount[o.Account] != o.JobID {
			s.Errorf("orphan %s is listed for account %q, want the job of this account", o.JobID, o.Account)
		}
	}

	idem := func(key string) *store.Idempotency { return &store.Idempotency{Key: key, BodyHash: "h", TTL: long} }
	if _, existed, err := s.Create(s.Context(), s.newRecord("a:b"), idem("c")); err != nil || existed {
		s.Errorf("first use of an idempotency key: existed %v, %v", existed, err)
	}
	if _, existed, err := s.Create(s.Context(), s.newRecord("a"), idem("b:c")); err != nil || existed {
		s.Errorf("an idempotency key that resembles the key of another account: existed %v, %v", existed, err)
	}
}

// testTotalsGrowByDigits raises the progress of a job across powers of ten, where decimal text does
// not sort like numbers.
func testTotalsGrowByDigits(s *suite) {
	f := s.createRunning(1 << 40)
	var sum int64
	for i, n := range []int64{0, 9, 1, 89, 1, 1<<53 - 99, 1 << 53, 1 << 62, 7} {
		s.must(s.CommitParts(s.Context(), f, []store.Part{{Key: fmt.Sprint(i), Rows: 1, Totals: store.RowTotals{Rows: n, InputTokens: n}}}))
		sum += n
		if job := s.get(f.JobID).Job; job.RowsDone != sum || *job.InputTokens != sum {
			s.Errorf("after %d: %d rows and %d tokens, want %d", n, job.RowsDone, *job.InputTokens, sum)
		}
	}
}

// testLargeSums adds amounts that a float cannot represent exactly.
func testLargeSums(s *suite) {
	const odd = 1<<53 + 1
	f := s.spendingWith("a", "m", KeyID)
	s.spend(f, "1", store.RowTotals{Rows: 1, OutputTokens: odd})
	s.spend(f, "2", store.RowTotals{Rows: 1, OutputTokens: odd + 1})
	if usage := s.usage("a"); len(usage) != 1 || usage[0].Totals.OutputTokens != 2*odd+1 {
		s.Errorf("the usage is %+v, want %d output tokens", usage, int64(2*odd+1))
	}
	s.checkSumOfKeys("a")

	// The amounts in trillionths are beyond 2^53. A reservation that exceeds the limit by
	// one trillionth must be refused.
	b := []store.Fence{s.createSpendingJob("b", "m"), s.createSpendingJob("b", "m"), s.createSpendingJob("b", "m")}
	s.spend(b[0], "1", store.RowTotals{Rows: 1, InputTokens: 1}) // 50,000 trillionths
	limit := 9008.0
	for i, usd := range []float64{9000.00000005, 7.9999} {
		s.must(s.Reserve(s.Context(), b[i], usd, &limit))
	}
	var refused *store.CostLimitError
	_, err := s.Reserve(s.Context(), b[2], 0.000100000001, &limit)
	if !errors.As(err, &refused) || refused.Spent != 50_000 || refused.Reserved != rowmill.MoneyFromUSD(9000)+rowmill.MoneyFromUSD(7.9999) {
		// b[0] has reserved 9000.00000005 and spent 0.00000005.
		s.Errorf("reserve beyond the limit: %v", err)
	}
	s.must(s.Reserve(s.Context(), b[2], 0.00009995, &limit))
}

// testReplaceManyParts replaces more parts than a store reads or writes in one step.
func testReplaceManyParts(s *suite) {
	const parts, each = 1201, 200
	f := s.createRunning(parts)
	var batch []store.Part
	for i := range parts {
		batch = append(batch, store.Part{Key: fmt.Sprint("p", i), Shard: 5, Rows: 1})
	}
	for some := range slices.Chunk(batch, each) {
		s.must(s.CommitParts(s.Context(), f, some))
	}
	var want []string
	for _, p := range batch {
		want = append(want, p.Key)
	}
	s.wantParts(f.JobID, want...)
	s.must(s.ReplaceParts(s.Context(), f, store.Part{Key: "all", Shard: 5, Rows: parts, Complete: true}))
	s.wantParts(f.JobID, "all")
	s.must(s.CommitParts(s.Context(), f, batch[each-1:each+2]))
	s.wantParts(f.JobID, "all")
	if _, err := s.Finish(s.Context(), f, func(r *store.Record) error {
		return r.Job.Become(rowmill.StatusSucceeded, time.Now())
	}); err != nil {
		s.Errorf("finish: %v", err)
	}
}
