package launch

import "time"

// The pauses before a server starts again.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// A RestartPlan decides how long a server that ended stays down. The zero value is the
// plan of a new server.
type RestartPlan struct {
	pause time.Duration // before the last start; 0 if the server has not ended yet
}

// Next returns the pause before the next start. answered reports whether the server
// answered in its last run. Each pause is twice the pause before; after a run with
// answers, the pauses begin again at their shortest.
func (r *RestartPlan) Next(answered bool) time.Duration {
	if answered {
		r.pause = 0
	}
	r.pause = min(max(firstPause, 2*r.pause), longestPause)
	return r.pause
}
