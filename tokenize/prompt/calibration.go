package prompt

import (
	"math"
	"slices"
	"sync"
)

const (
	// window is how many rows a calibration keeps: enough for a steady median, and few
	// enough that new rows replace the old rows within seconds when a server restarts
	// with another template.
	window = 64
	// minRows is the smallest number of rows for an estimate: fewer rows can agree by
	// chance.
	minRows = 8
	// refitEvery is the number of rows between two fits. A fit for another vocabulary
	// takes 160 µs.
	refitEvery = 128
	// minAgreement is a share of rows. If our count and the server's count differ by
	// the same number of tokens in this share of rows, fitLine assumes that our vocabulary
	// is the server's. The other rows then contain names of special tokens or have wrong
	// reports.
	minAgreement = 0.75
)

// Calibration compares our counts of prompts with the usage that a server
// reports, for one model on one server. The server's template and vocabulary
// can differ from ours. Calibration learns
//
//	used ≈ ratio · counted + offset
//
// If our vocabulary is the server's, the ratio is 1, and the offset is the size
// of the template parts that our template lacks (0 for the right template).
// With another vocabulary, ratio and offset are fitted to the last rows by the
// method of Theil and Sen: the median of the slopes of all pairs, then the
// median of the remainders. Up to a quarter of wrong rows does not change the
// result. The zero value is ready for use. A Calibration is safe for concurrent
// use.
type Calibration struct {
	mu            sync.Mutex
	rows          int64               // rows observed in total
	seen          [window]tokenSample // the last rows; row number n is at index n modulo window
	ratio, offset float64             // result of the last fit
}

type tokenSample struct{ counted, used float64 }

// AddSample adds a row: our count of its prompt, and the prompt tokens that the server
// reported, including cached tokens. It ignores a report of no tokens.
//
// For embeddings, servers report the tokens of a group of rows. Pass the sums
// of a group as one row, or pass only groups with a single row.
func (c *Calibration) AddSample(counted, used int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counted < 0 || used <= 0 {
		return
	}
	c.seen[c.rows%window] = tokenSample{float64(counted), float64(used)}
	c.rows++
	if slices.Contains([]int64{minRows, window / 4, window / 2, window}, c.rows) || c.rows%refitEvery == 0 {
		c.ratio, c.offset = fitLine(c.recent())
	}
}

// Estimate returns the server's count for our count of a prompt. Before it has
// seen enough rows, it returns our count.
func (c *Calibration) Estimate(counted int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows < minRows {
		return counted
	}
	return max(0, int(math.Round(c.ratio*float64(counted)+c.offset)))
}

// MeanError returns the mean error of our uncorrected counts over the last rows,
// in tokens. The error is not 0 if our template or vocabulary is not the server's.
// ok is false before the first row.
func (c *Calibration) MeanError() (mean float64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	recent := c.recent()
	for _, o := range recent {
		mean += math.Abs(o.used-o.counted) / float64(len(recent))
	}
	return mean, len(recent) > 0
}

// recent returns the last rows, at most window, in no order.
func (c *Calibration) recent() []tokenSample { return c.seen[:min(c.rows, window)] }

// fitLine returns the ratio 1 if most rows differ by the same number of tokens, and
// otherwise the line that fits the rows best.
func fitLine(rows []tokenSample) (ratio, offset float64) {
	diffs := make([]float64, len(rows))
	for i, o := range rows {
		diffs[i] = o.used - o.counted
	}
	offset = median(diffs)
	agree := 0
	for _, diff := range diffs {
		if diff == offset {
			agree++
		}
	}
	if float64(agree) >= minAgreement*float64(len(rows)) {
		return 1, offset
	}
	return theilSen(rows)
}

// theilSen fits a line by the method of Theil and Sen. If all rows have the
// same length, the slope is 1.
func theilSen(rows []tokenSample) (ratio, offset float64) {
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
