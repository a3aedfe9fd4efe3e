package retention

import (
	"maps"
	"slices"
	"time"
)

// A removal or a cleanup that failed is retried after firstBackoff. Each further failure doubles the
// wait, up to maxBackoff. If a key lacks a right or a disk is broken, both fail for
// hours, and retries should cost little meanwhile.
const (
	firstBackoff = time.Minute
	maxBackoff   = 6 * time.Hour
)

// failures has the jobs with a failed removal or cleanup, by job. Without it each round
// would try only these jobs, because they come first.
type failures map[string]backoff

// A backoff has the last wait after a failure, and the time of the next attempt, as
// running time of the process.
type backoff struct {
	of    string // an account for failed removals of expired data; due for jobs of Retention.DueJobs
	pause time.Duration
	until time.Duration
}

// due is in the place of an account for the jobs of Retention.DueJobs.
const due = ""

// count returns the number of failed jobs of an account, or of due jobs.
func (a failures) count(of string) (n int) {
	for _, b := range a {
		if b.of == of {
			n++
		}
	}
	return n
}

// waits reports whether the next attempt at a job is not due yet.
func (a failures) waits(job string, now time.Duration) bool { return now < a[job].until }

// failed notes that an attempt at a job failed.
func (a failures) failed(of, job string, now time.Duration) {
	pause := min(max(firstBackoff, 2*a[job].pause), maxBackoff)
	a[job] = backoff{of: of, pause: pause, until: now + pause}
}

// keep forgets the failed jobs of an account, or failed due jobs, that are not listed.
// The list has all failed jobs that still have something to remove.
func (a failures) keep(of string, listed []string) {
	maps.DeleteFunc(a, func(job string, b backoff) bool { return b.of == of && !slices.Contains(listed, job) })
}
