package rowmill

import (
	"testing"
	"time"
)

func TestForecastEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 5, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		seconds float64
		ends    time.Time
		met     bool
	}{
		"before the deadline": {3599.999, now.Add(time.Hour - time.Millisecond), true},
		"at the deadline":     {3600, now.Add(time.Hour), true},
		"after the deadline":  {3600.001, now.Add(time.Hour + time.Millisecond), false},
		"after 100 years":     {1e300, now.Add(longestForecast * time.Second), false},
	} {
		low, high := test.seconds/2, test.seconds*2 // they do not matter
		e := Estimate{Seconds: &test.seconds, SecondsLow: &low, SecondsHigh: &high}
		got := e.ForecastEnd(now, now.Add(time.Hour))
		want := Forecast{Seconds: test.seconds, SecondsLow: low, SecondsHigh: high, FinishesAt: test.ends, Deadline: now.Add(time.Hour), Met: test.met}
		if *got != want {
			t.Errorf("%s: %+v, want %+v", name, *got, want)
		}
	}
	if got := (&Estimate{}).ForecastEnd(now, now); got != nil {
		t.Errorf("without a time: %+v", got)
	}
}
