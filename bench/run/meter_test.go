package main

import (
	"math"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// A server with requests from second 1 on answers 50 rows/s until second 6, then 100
// rows/s until second 41, and then is idle.
func TestFiguresOfACourse(t *testing.T) {
	t.Parallel()
	var c course
	for at := time.Duration(0); at <= 45*time.Second; at += readEvery {
		r := reading{at: time.Unix(0, int64(at))}
		switch s := at.Seconds(); {
		case s < 1:
		case s < 6:
			r.done, r.running, r.waiting = 50*(s-1), 128, 0
		case s < 41:
			r.done, r.running, r.waiting, r.preempted = 250+100*(s-6), 256, 30, 3
		default:
			r.done, r.preempted = 3750, 3
		}
		c = append(c, r)
	}
	f := must.Get(c.figures())(t)
	for _, check := range []struct {
		name           string
		got, want, off float64
	}{
		{"done", f.done, 3750, 0},
		{"rate", f.rate, 100, 0.1},
		{"batch", f.batch, 256, 0},
		{"peak", f.peak, 286, 0},
		{"preempted", f.preempted, 3, 0},
		{"length", f.length.Seconds(), 40, 0.2},
		// The mean over 2 s reaches 95 rows/s 1.8 s after the rate has changed.
		{"reached", f.reached.Seconds(), 6.8, 0.2},
	} {
		if math.Abs(check.got-check.want) > check.off+1e-9 {
			t.Errorf("%s is %v, want %v", check.name, check.got, check.want)
		}
	}
}

// Without an answer there are no figures.
func TestFiguresOfNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	if _, err := (course{{at: now}, {at: now.Add(time.Second)}}).figures(); err == nil {
		t.Error("an idle server has figures")
	}
}
