package retention

import "time"

// A removal that failed is retried after firstRest, and after twice the last wait with
// each further failure, up to mostRest. If a key lacks a right or a disk is broken, this
// lasts for hours, and retries should cost little meanwhile.
const (
	firstRest = time.Minute
	mostRest  = 6 * time.Hour
)

// ailing has the jobs of accounts whose data could not be removed. Without it, failing
// jobs, which ended first, would be the only jobs that are ever tried.
type ailing map[string]map[string]ailment

// An ailment has the last wait after a failed removal, and the time of the next attempt,
// as running time of the process.
type ailment struct {
	rest  time.Duration
	until time.Duration
}

// of returns the number of failed jobs of an account.
func (a ailing) of(account string) int { return len(a[account]) }

// rests reports whether a job must wait for its next attempt.
func (a ailing) rests(account, job string, now time.Duration) bool {
	return now < a[account][job].until
}

// failed notes a failure.
func (a ailing) failed(account, job string, now time.Duration) {
	if a[account] == nil {
		a[account] = map[string]ailment{}
	}
	rest := min(max(firstRest, 2*a[account][job].rest), mostRest)
	a[account][job] = ailment{rest: rest, until: now + rest}
}

// keep forgets the failed jobs of an account that are not in held. held covers all
// failed jobs that still have data, so the data of the others is gone.
func (a ailing) keep(account string, held []string) {
	was := a[account]
	delete(a, account)
	for _, job := range held {
		if before, failed := was[job]; failed {
			if a[account] == nil {
				a[account] = map[string]ailment{}
			}
			a[account][job] = before
		}
	}
}
