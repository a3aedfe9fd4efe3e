package work

import (
	"testing"
	"time"
)

func TestPaceIsOfTheLastSecond(t *testing.T) {
	t.Parallel()
	var p Pace
	now := start
	for _, step := range []struct {
		after time.Duration
		rows  int
		want  int
	}{
		{0, 10, 10},
		{500 * time.Millisecond, 20, 30},
		{500 * time.Millisecond, 1, 30}, // a second is over
		{900 * time.Millisecond, 50, 51},
		{200 * time.Millisecond, 2, 51},
		{2 * time.Second, 3, 3}, // nothing came in the second before
	} {
		now = now.Add(step.after)
		p.Answered(step.rows, now)
		if got := p.Second(); got != step.want {
			t.Errorf("at %v: %d rows a second, want %d", now.Sub(start), got, step.want)
		}
	}
}
