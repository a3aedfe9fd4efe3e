package prompt

import (
	"math"
	"slices"
	"sync"
)

const (
	// window is how many rows a calibration remembers: enough for a steady
	// median, few enough to forget a server that was restarted with another
	// template within seconds.
	window = 64
	// learnedAfter is how many rows a calibration rests on at least: fewer
	// agree by chance.
	learnedAfter = 8
	// refit is how many rows lie between two fits: those of a foreign vocabulary
	// cost 160 µs.
	refit = 128
	// agreeing is the share of rows that differ by one and the same number
	// where template and vocabulary are the server's. The others hold the names
	// of special tokens, or come from a server that reports something odd.
	agreeing = 0.75
)

// A Calibration compares our counts of prompts with the usage that a server
// reports for them, for one model on one server, whose template and vocabulary
// may be others than ours. It learns
//
//	used ≈ ratio · counted + offset
//
// With the server's own vocabulary the ratio is 1, and the offset is what our
// template lacks, 0 where it is the right one. With another vocabulary both are
// fitted to the last rows by Theil and Sen (the median of the slopes of all
// pairs, then the median of what is left), which a quarter of nonsensical rows
// does not move. The zero value is ready; it is safe for concurrent use.
type Calibration struct {
	mu      sync.Mutex
	rows    int64 // observed in all
	ignored int64
	seen    [window]observation // the last rows, in a ring
	fit     fit
}

type observation struct{ counted, used float64 }

// A fit is what a window says.
type fit struct {
	exact         bool
	offset, ratio float64
	within        float64 // tokens; 19 of 20 rows of the window are that close
	share         float64 // the same as a share of the row's count
}

// Observe takes a row that we counted and the prompt tokens that the server
// reported for it, cached ones included. It returns how much more the server
// counts. A report of no tokens is none, and ignored.
//
// The tokens of an embedding are known for groups of rows only: give the sums of
// a group as one row, or only groups of one.
func (c *Calibration) Observe(counted, used int) (diff int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counted < 0 || used <= 0 {
		c.ignored++
		return 0, false
	}
	c.seen[c.rows%window] = observation{float64(counted), float64(used)}
	c.rows++
	switch c.rows {
	case learnedAfter, window / 4, window / 2, window:
		c.fit = fitTo(c.recent())
	}
	if c.rows%refit == 0 {
		c.fit = fitTo(c.recent())
	}
	return used - counted, true
}

// Estimate turns our count of a prompt into what the server will count, and says
// how far 19 of 20 recent rows were off at most. Before the calibration has
// learned anything it returns our count.
func (c *Calibration) Estimate(counted int) (tokens, within int, learned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows < learnedAfter {
		return counted, 0, false
	}
	f, n := c.fit, float64(counted)
	tokens = max(0, int(math.Round(f.ratio*n+f.offset)))
	within = int(math.Ceil(f.within))
	if !f.exact {
		// A longer row than those of the window is off by more.
		within = max(within, int(math.Ceil(f.share*n)))
	}
	return tokens, within, true
}

// Report is what a calibration has learned. Errors are in tokens.
type Report struct {
	Rows    int64 // observed
	Ignored int64 // reported without tokens

	// Exact says that most recent rows differ by the same number of tokens:
	// the vocabulary is the server's, and the template too where Offset is 0.
	Exact         bool
	Offset, Ratio float64

	// MeanError and MaxError are of our counts as they are, over the last 64
	// rows: not 0 where template or vocabulary are not the server's.
	MeanError, MaxError float64

	// Within is what remains with the calibration, for 19 of 20 recent rows.
	Within float64
}

// Report returns what has been learned so far. Before that Ratio is 1.
func (c *Calibration) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{Rows: c.rows, Ignored: c.ignored, Ratio: 1}
	if c.rows >= learnedAfter {
		r.Exact, r.Offset, r.Ratio, r.Within = c.fit.exact, c.fit.offset, c.fit.ratio, c.fit.within
	}
	recent := c.recent()
	for _, o := range recent {
		off := math.Abs(o.used - o.counted)
		r.MeanError += off / float64(len(recent))
		r.MaxError = max(r.MaxError, off)
	}
	return r
}

// recent returns the rows of the window in no order.
func (c *Calibration) recent() []observation { return c.seen[:min(c.rows, window)] }

func fitTo(rows []observation) fit {
	diffs := make([]float64, len(rows))
	for i, o := range rows {
		diffs[i] = o.used - o.counted
	}
	f := fit{offset: median(diffs), ratio: 1}
	agree := 0
	for _, o := range rows {
		if o.used-o.counted == f.offset {
			agree++
		}
	}
	if f.exact = float64(agree) >= agreeing*float64(len(rows)); !f.exact {
		f.ratio, f.offset = slope(rows)
	}
	off, share := make([]float64, len(rows)), make([]float64, len(rows))
	for i, o := range rows {
		off[i] = math.Abs(o.used - f.ratio*o.counted - f.offset)
		share[i] = off[i] / max(o.counted, 1)
	}
	f.within, f.share = most(off), most(share)
	return f
}

// slope fits a line by Theil and Sen. Rows of one length tell no slope; it is 1.
func slope(rows []observation) (ratio, offset float64) {
	slopes := make([]float64, 0, len(rows)*(len(rows)-1)/2)
	for i, a := range rows {
		for _, b := range rows[:i] {
			if a.counted != b.counted {
				slopes = append(slopes, (a.used-b.used)/(a.counted-b.counted))
			}
		}
	}
	ratio = 1
	if len(slopes) > 0 {
		ratio = median(slopes)
	}
	rest := make([]float64, len(rows))
	for i, o := range rows {
		rest[i] = o.used - ratio*o.counted
	}
	return ratio, median(rest)
}

// median returns the lower of the two in the middle, so that whole numbers stay
// whole. It sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// most returns the value that 19 of 20 do not exceed. It sorts values.
func most(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)*19+19)/20-1]
}
