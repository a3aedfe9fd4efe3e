package prompt

import (
	"math"
	"slices"
	"sync"
)

const (
	// window is how many rows a calibration keeps: enough for a steady median,
	// and few enough to forget within seconds a server that was restarted with
	// another template.
	window = 64
	// minRows is how many rows a calibration needs at least: fewer rows can
	// agree by chance.
	minRows = 8
	// refitEvery is the number of rows between two fits. A fit for another
	// vocabulary costs 160 µs.
	refitEvery = 128
	// agreeing is the share of rows that must differ by the same number of
	// tokens if template and vocabulary are the server's. The other rows
	// contain names of special tokens or have wrong reports.
	agreeing = 0.75
)

// Calibration compares our counts of prompts with the usage that a server
// reports, for one model on one server. The server's template and vocabulary
// can differ from ours. It learns
//
//	used ≈ ratio · counted + offset
//
// With the server's own vocabulary the ratio is 1, and the offset is the size
// of the template parts that our template lacks (0 for the right template).
// With another vocabulary both are fitted to the last rows by the method of
// Theil and Sen: the median of the slopes of all pairs, then the median of the
// remainders. Up to a quarter of wrong rows does not change the result. The
// zero value is ready for use. It is safe for concurrent use.
type Calibration struct {
	mu      sync.Mutex
	rows    int64 // rows observed in total
	ignored int64
	seen    [window]observation // the last rows, in a ring
	fit     fit
}

type observation struct{ counted, used float64 }

// fit is the result of fitting a window of rows.
type fit struct {
	exact         bool
	offset, ratio float64
	within        float64 // in tokens; 19 of 20 rows of the window are within it
	share         float64 // within as a share of the row's count
}

// Observe takes our count of a row and the prompt tokens that the server
// reported, including cached tokens. It returns how many more tokens the server
// counted. It ignores a report of no tokens.
//
// For embeddings, servers report the tokens of a group of rows. Pass the sums
// of a group as one row, or pass only groups with a single row.
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
	case minRows, window / 4, window / 2, window:
		c.fit = fitTo(c.recent())
	}
	if c.rows%refitEvery == 0 {
		c.fit = fitTo(c.recent())
	}
	return used - counted, true
}

// Estimate returns the server's count for our count of a prompt. within is the
// largest error of 19 of 20 recent rows. Before it has seen enough rows, it
// returns our count.
func (c *Calibration) Estimate(counted int) (tokens, within int, learned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows < minRows {
		return counted, 0, false
	}
	f, n := c.fit, float64(counted)
	tokens = max(0, int(math.Round(f.ratio*n+f.offset)))
	within = int(math.Ceil(f.within))
	if !f.exact {
		// A row that is longer than the rows of the window can have a larger error.
		within = max(within, int(math.Ceil(f.share*n)))
	}
	return tokens, within, true
}

// Report holds the results of a calibration. Errors are in tokens.
type Report struct {
	Rows    int64 // rows observed
	Ignored int64 // reports without tokens

	// Exact means that most recent rows differ by the same number of tokens:
	// the vocabulary is the server's, and if Offset is 0 the template is too.
	Exact         bool
	Offset, Ratio float64

	// MeanError and MaxError are the errors of our uncorrected counts, over the
	// last 64 rows. They are not 0 if the template or the vocabulary is not the
	// server's.
	MeanError, MaxError float64

	// Within is the remaining error with the calibration, for 19 of 20 recent
	// rows.
	Within float64
}

// Report returns the current results. Ratio is 1 before the first fit.
func (c *Calibration) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{Rows: c.rows, Ignored: c.ignored, Ratio: 1}
	if c.rows >= minRows {
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

// recent returns the rows of the window, in no order.
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
		f.ratio, f.offset = theilSen(rows)
	}
	off, share := make([]float64, len(rows)), make([]float64, len(rows))
	for i, o := range rows {
		off[i] = math.Abs(o.used - f.ratio*o.counted - f.offset)
		share[i] = off[i] / max(o.counted, 1)
	}
	f.within, f.share = percentile95(off), percentile95(share)
	return f
}

// theilSen fits a line by the method of Theil and Sen. If all rows have the
// same length, the slope is 1.
func theilSen(rows []observation) (ratio, offset float64) {
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

// median returns the lower of the two middle values, so that whole numbers stay
// whole. It sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// percentile95 returns the value that 19 of 20 values do not exceed. It sorts
// values.
func percentile95(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)*19+19)/20-1]
}
