package work

import "time"

// A Pace is how fast rows are answered.
type Pace struct {
	begun time.Time // of the second that is counted
	rows  int       // in it so far
	last  int       // in the one before
}

// Answered takes in rows that were answered just now.
func (p *Pace) Answered(rows int, now time.Time) {
	if past := now.Sub(p.begun); past >= time.Second {
		if p.last = p.rows; past >= 2*time.Second {
			p.last = 0
		}
		p.begun, p.rows = now, 0
	}
	p.rows += rows
}

// Second is how many rows are answered in a second, as far as is known.
func (p *Pace) Second() int { return max(p.last, p.rows) }
