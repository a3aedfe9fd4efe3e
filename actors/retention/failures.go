package retention

import (
	"maps"
	"slices"
	"time"
)

// A removal or a cleanup that failed is retried after firstBackoff. Each further failure
// doubles the wait, up to maxBackoff. If an access key lacks a right or a disk is broken,
// removals fail for hours, and the retries should cost little. A removal that waits for an open
// job (errNeeded) is retried likewise.
const (
	firstBackoff = time.Minute
	maxBackoff   = 6 * time.Hour
)

// jobBackoffs has the last failure of each job whose removal or cleanup has failed, by job
// id. These jobs come first in the store's lists, so without this record each round
// would try only them.
type jobBackoffs map[string]backoff

// A backoff says when a failed removal or cleanup is retried.
type backoff struct {
	// of is the account of the job if the removal of expired data failed, and the constant
	// due if the job is from Retention.ListDueRemovals.
	of    string
	pause time.Duration // the current wait
	until time.Duration // time of the next attempt, as running time of the process
}

// due is the value of backoff.of for jobs from Retention.ListDueRemovals.
const due = ""

// count returns the number of failed jobs whose backoff.of is source.
func (a jobBackoffs) count(source string) (n int) {
	for _, b := range a {
		if b.of == source {
			n++
		}
	}
	return n
}

// isBackingOff reports whether it is too early for the next attempt at a job. now is the
// running time of the process.
func (a jobBackoffs) isBackingOff(job string, now time.Duration) bool { return now < a[job].until }

// isExpiryBackingOff is isBackingOff for the removal of an account's expired data. A failed
// cleanup does not delay this removal, because a cleanup that needs lost objects always fails.
func (a jobBackoffs) isExpiryBackingOff(account, job string, now time.Duration) bool {
	return a[job].of == account && a.isBackingOff(job, now)
}

// recordFailure records that an attempt at a job has failed, and sets the time of the next
// attempt.
func (a jobBackoffs) recordFailure(source, job string, now time.Duration) {
	pause := firstBackoff
	if last := a[job]; last.of == source {
		pause = min(max(firstBackoff, 2*last.pause), maxBackoff)
	}
	a[job] = backoff{of: source, pause: pause, until: now + pause}
}

// forgetUnlisted forgets the failures of all jobs that are not in listed and whose backoff.of is
// source. listed has all failed jobs that still have something to remove.
func (a jobBackoffs) forgetUnlisted(source string, listed []string) {
	maps.DeleteFunc(a, func(job string, b backoff) bool { return b.of == source && !slices.Contains(listed, job) })
}
