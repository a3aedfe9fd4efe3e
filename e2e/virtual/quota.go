package virtual

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/quotas"
	"github.com/rowmill/rowmill/store"
	recordstore "github.com/rowmill/rowmill/store/records"
)

// limitCost sets the cost quota of defaultAccount for a month.
func (w *world) limitCost(usd float64) error {
	_, version, err := w.vault.base.GetValue(background, quotas.ValueName(defaultAccount))
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return err
	}
	doc, err := json.Marshal(map[string]any{"quotas": []any{}, "cost_quota_usd": usd})
	if err != nil {
		return err
	}
	_, err = w.vault.base.PutValue(background, quotas.ValueName(defaultAccount), doc, version)
	return err
}

// reserve reserves money for a job in the store, and compares the answer with the spent
// and reserved money of the account.
func (a *account) reserve(s *recordstore.Store, f store.Fence, usd float64, limit *float64) (store.Record, error) {
	before, _ := s.Get(background, f.JobID)
	rec, err := s.Reserve(background, f, usd, limit)
	if limit == nil {
		return rec, err
	}
	if before.Spec.Account == otherAccount {
		a.wrong("a job of %s is held against a limit of %v, which is another account's", otherAccount, *limit)
	}
	var refused *store.CostLimitError
	switch bound := rowmill.MoneyFromUSD(*limit); {
	case errors.As(err, &refused):
		before.Reserved = rowmill.MoneyFromUSD(usd)
		if all := a.bound(s, f.JobID).Plus(unused(before)); all <= bound {
			a.wrong("%v is refused for a job: with it, %v of %v are spent or set aside", rowmill.MoneyFromUSD(usd), all, bound)
		}
		a.mu.Lock()
		a.refused[f.JobID] = rowmill.MoneyFromUSD(usd)
		a.mu.Unlock()
	case err == nil && rec.Reserved > before.Reserved:
		if all := a.bound(s, ""); all > bound {
			a.wrong("%v is set aside for a job: %v of %v are spent or set aside now", rowmill.MoneyFromUSD(usd), all, bound)
		}
	}
	return rec, err
}

// bound returns the sum of the money that the account spent this month and the reserved
// money of its jobs, except job but.
func (a *account) bound(s *recordstore.Store, but string) rowmill.Money {
	sum := a.spent(s)
	jobs, _, err := s.List(background, defaultAccount, 100, "")
	for _, job := range jobs {
		rec, getErr := s.Get(background, job.ID)
		if err = errors.Join(err, getErr); job.ID != but {
			sum = sum.Plus(unused(rec))
		}
	}
	if err != nil {
		a.wrong("read the reserved amount: %v", err)
	}
	return sum
}

// unused returns the reserved money of a job minus the cost of its committed rows.
func unused(rec store.Record) rowmill.Money {
	return max(rec.Reserved-rowmill.MoneyFromUSD(*rec.Spec.Model.Cost(&rec.Job)), 0) // the world's models have prices
}

func (a *account) spent(s *recordstore.Store) (sum rowmill.Money) {
	now := time.Now().UTC()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	days, err := s.Usage(background, defaultAccount, first, first.AddDate(0, 1, -1))
	if err != nil {
		a.wrong("the ledger: %v", err)
	}
	for _, d := range days {
		sum = sum.Plus(d.Cost)
	}
	return sum
}

// judgeReserved checks that ended jobs reserve no money: one more job is refused without
// money left, and runs when exactly its cost is left.
func (a *account) judgeReserved(keeper int) {
	if a.world.CostLimit <= 0 {
		return
	}
	spent := a.spent(a.world.vault.base)
	id, rec := a.lastCall(keeper, "first", spent)
	if rec.Job.Status != rowmill.StatusFailed || rec.Job.FailureReason.Code != rowmill.CodeCostQuota {
		a.wrong("a job of an account that has spent all it may is %s: %+v", rec.Job.Status, rec.Job.FailureReason)
		return
	}
	a.mu.Lock()
	need := a.refused[id]
	a.mu.Unlock()
	if _, rec = a.lastCall(keeper, "second", spent.Plus(need)); rec.Job.Status != rowmill.StatusSucceeded {
		a.wrong("a job that costs what its account has left is %s: %+v", rec.Job.Status, rec.Job.FailureReason)
	}
}

// lastCall runs a job with a single row under a cost quota.
func (a *account) lastCall(keeper int, name string, limit rowmill.Money) (id string, rec store.Record) {
	if err := a.world.limitCost(limit.USD()); err != nil {
		a.wrong("limit what the account may spend: %v", err)
		return "", rec
	}
	j := &jobCase{account: a, Job: Job{Node: keeper}, index: len(a.jobs), input: []string{"the last row"}}
	header := http.Header{"Idempotency-Key": {name}, "Authorization": {"Key " + keyOf(defaultAccount)}}
	code, text := a.world.request(keeper, http.MethodPost, "/v1/batch-inference", header, j.submission(nil))
	var answer struct {
		Results string `json:"results"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || code != http.StatusOK {
		a.wrong("the last job is answered %d %s", code, text)
		return "", rec
	}
	for range 240 {
		time.Sleep(250 * time.Millisecond)
		if rec, _ = a.look(answer.Results); rec.Job.Status.IsTerminal() {
			break
		}
	}
	return answer.Results, rec
}
