package retention

import "time"

// A removal that failed is retried after firstBackoff. Each further failure doubles the
// wait, up to maxBackoff. If a key lacks a right or a disk is broken, removals fail for
// hours, and retries should cost little meanwhile.
const (
	firstBackoff = time.Minute
	maxBackoff   = 6 * time.Hour
)

// failures has the jobs with data that could not be removed, by account and job. Without
// it each round would try only these jobs, because they ended first.
type failures map[string]map[string]backoff

// A backoff has the last wait after a failed removal, and the time of the next attempt,
// as running time of the process.
type backoff struct {
	pause time.Duration
	until time.Duration
}

// of returns the number of failed jobs of an account.
func (a failures) of(account string) int { return len(a[account]) }

// waits reports whether the next attempt to remove a job's data is not due yet.
func (a failures) waits(account, job string, now time.Duration) bool {
	return now < a[account][job].until
}

// failed notes that an attempt to remove a job's data failed.
func (a failures) failed(account, job string, now time.Duration) {
	if a[account] == nil {
		a[account] = map[string]backoff{}
	}
	pause := min(max(firstBackoff, 2*a[account][job].pause), maxBackoff)
	a[account][job] = backoff{pause: pause, until: now + pause}
}

// keep forgets the failed jobs of an account that are not in held. held has all failed
// jobs that still have data, so the data of the forgotten jobs is gone.
func (a failures) keep(account string, held []string) {
	was := a[account]
	delete(a, account)
	for _, job := range held {
		if before, failed := was[job]; failed {
			if a[account] == nil {
				a[account] = map[string]backoff{}
			}
			a[account][job] = before
		}
	}
}
