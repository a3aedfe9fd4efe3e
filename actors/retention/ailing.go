package retention

import "time"

// A removal that failed is tried again after firstRest, and after twice as long
// with each further failure, up to mostRest: what a wrong right of a key or a
// broken disk holds up is held up for hours, and costs little meanwhile.
const (
	firstRest = time.Minute
	mostRest  = 6 * time.Hour
)

// ailing are the jobs of accounts whose data could not be removed. Without it
// those that fail, which ended first, would be all that is ever tried.
type ailing map[string]map[string]ailment

// An ailment is how often a removal has failed, and when it is tried again by
// the time that the process has run.
type ailment struct {
	rest  time.Duration
	until time.Duration
}

// of is how many jobs of an account failed.
func (a ailing) of(account string) int { return len(a[account]) }

// rests reports whether a job is not to be tried now.
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

// keep forgets the jobs of an account that are not among those held: all that
// failed before are asked for, so they have gone.
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
