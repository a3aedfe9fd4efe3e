package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// maxOpenJobs limits how many open jobs of an account neededJobs reads.
const maxOpenJobs = 10_000

// errNeeded means that an open job still reads the data, so the janitor keeps the data and tries again later.
var errNeeded = errors.New("an open job reads the data")

// neededJobs returns the ids of jobs. An open job of the account reads their input, answers or rows.
// An open job may wait for a long time before it reads them. If the account has maxOpenJobs open jobs or
// more, neededJobs returns an error.
func (j *Janitor) neededJobs(ctx context.Context, account string, now time.Time) (map[string]bool, error) {
	open, err := j.Store.ListActiveJobs(ctx, []string{account}, now, maxOpenJobs)
	if err != nil {
		return nil, err
	}
	if len(open[0]) >= maxOpenJobs {
		return nil, fmt.Errorf("%d or more jobs are open, and one of them may read data whose retention has ended; the data is removed when fewer jobs are open", maxOpenJobs)
	}
	needed := map[string]bool{}
	for _, id := range open[0] {
		head, err := j.Store.Head(ctx, id)
		switch {
		case errors.Is(err, store.ErrDamaged), errors.Is(err, rowmill.ErrNotFound): // such a job does not run
			continue
		case err != nil:
			return nil, fmt.Errorf("read an open job: %w", err)
		case head.Job.Status.IsTerminal():
			continue
		}
		for _, read := range []*string{head.Job.InputOf, head.Job.Continues} {
			if read != nil {
				needed[*read] = true
			}
		}
		if reuse := head.Job.Reuse; reuse != nil {
			for _, read := range reuse.Jobs {
				needed[read] = true
			}
		}
	}
	return needed, nil
}
