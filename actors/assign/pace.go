package assign

import "time"

// A rate of committed rows covers a minute, in steps of paceStep. The rows of a worker are
// committed only every few seconds, so a rate over a shorter time would jump.
const (
	paceStep  = 5 * time.Second
	paceSteps = 12
)

// A commitRate counts committed rows, in total and over the last minute.
type commitRate struct {
	began time.Time        // start of step 0
	all   int64            // number of all committed rows
	steps [paceSteps]int64 // committed rows of each step, by the step's number modulo paceSteps
	last  int64            // number of the current step
}

// add counts a number of rows that were committed at now.
func (p *commitRate) add(rows int64, now time.Time) {
	p.advanceTo(now)
	p.all += rows
	p.steps[p.last%paceSteps] += rows
}

// advanceTo moves to the step that contains now, and clears the steps that are older than a
// minute.
func (p *commitRate) advanceTo(now time.Time) {
	for step := int64(now.Sub(p.began) / paceStep); p.last < step; {
		p.last = max(p.last, step-paceSteps) + 1
		p.steps[p.last%paceSteps] = 0
	}
}

// rate returns the committed rows per second over the last minute. It returns nil
// before the first step has ended.
func (p *commitRate) rate(now time.Time) *float64 {
	p.advanceTo(now)
	if p.last == 0 {
		return nil
	}
	var rows int64
	for _, n := range p.steps {
		rows += n
	}
	oldest := max(0, p.last-paceSteps+1)
	rate := float64(rows) / (now.Sub(p.began) - time.Duration(oldest)*paceStep).Seconds()
	return &rate
}
