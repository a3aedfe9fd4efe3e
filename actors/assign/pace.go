package assign

import "time"

// Rows of a worker are committed every few seconds, so that what is counted over less
// than a minute would jump. It is counted in steps of paceStep.
const (
	paceStep  = 5 * time.Second
	paceSteps = 12
)

// A pace is how many rows were committed, in all and of late.
type pace struct {
	began time.Time // when counting began
	all   int64
	steps [paceSteps]int64 // by number of the step since then, modulo
	last  int64            // number of the step that is counted now
}

// add counts rows that are committed now.
func (p *pace) add(rows int64, now time.Time) {
	p.turn(now)
	p.all += rows
	p.steps[p.last%paceSteps] += rows
}

// turn goes on to the step of a time and forgets those that are too old.
func (p *pace) turn(now time.Time) {
	for step := int64(now.Sub(p.began) / paceStep); p.last < step; {
		p.last = max(p.last, step-paceSteps) + 1
		p.steps[p.last%paceSteps] = 0
	}
}

// rate is how many rows a second were committed of late; nil before a whole step is
// over.
func (p *pace) rate(now time.Time) *float64 {
	p.turn(now)
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
