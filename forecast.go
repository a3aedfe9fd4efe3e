package rowmill

import "time"

// Forecast says whether a job will end by its deadline, as forecast when it was submitted. All times
// are in UTC.
type Forecast struct {
	Seconds     float64   `json:"seconds"`      // as in Estimate, from the end of the sample
	SecondsLow  float64   `json:"seconds_low"`  // as in Estimate
	SecondsHigh float64   `json:"seconds_high"` // as in Estimate
	FinishesAt  time.Time `json:"finishes_at"`  // the end of the sample plus Seconds
	Deadline    time.Time `json:"deadline"`
	Met         bool      `json:"met"` // FinishesAt is not after Deadline
}

// longestForecast limits FinishesAt, in seconds: a longer time does not fit into a time.Duration.
const longestForecast = 100 * 365 * 24 * 60 * 60

// ForecastEnd returns the forecast of a job that starts now. It returns nil if the estimate has no
// time.
func (e *Estimate) ForecastEnd(now, deadline time.Time) *Forecast {
	if e.Seconds == nil || e.SecondsLow == nil || e.SecondsHigh == nil {
		return nil
	}
	end := now.Add(time.Duration(min(*e.Seconds, longestForecast) * float64(time.Second))).UTC().Truncate(time.Millisecond)
	return &Forecast{
		Seconds: *e.Seconds, SecondsLow: *e.SecondsLow, SecondsHigh: *e.SecondsHigh,
		FinishesAt: end, Deadline: deadline, Met: !end.After(deadline),
	}
}
