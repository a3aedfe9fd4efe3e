package launch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// An invented server answers and ends at given times after its start.
type invented struct {
	answers, ends time.Duration // 0: never
}

// Each pause is twice the pause before, at most a minute. After a run with answers, the
// pauses begin again. A server that does not answer in time is ended.
func TestPauses(t *testing.T) {
	t.Parallel()
	const ready = 10 * time.Minute
	crash := invented{ends: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		runs := []invented{crash, crash, crash, crash, crash, crash, crash, crash, {answers: time.Hour}, crash, {answers: 5 * time.Minute, ends: time.Hour}, crash, {answers: time.Second}}
		want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 1, 2} // seconds
		var starts, ended []time.Time
		s := newServer(Config{Name: "s", Ready: ready, Logger: slog.New(slog.DiscardHandler)})
		s.start = func() (process, error) {
			run := runs[len(starts)]
			starts = append(starts, time.Now())
			exited, stop := make(chan error, 1), make(chan struct{}, 2)
			go func() {
				ends := time.After(run.ends)
				if run.ends == 0 {
					ends = nil
				}
				select {
				case <-ends:
				case <-stop:
				}
				ended = append(ended, time.Now())
				exited <- errors.New("ended")
			}()
			return process{end: func() { stop <- struct{}{} }, exited: exited}, nil
		}
		s.Probe = func(context.Context) error {
			run := runs[len(starts)-1]
			if run.answers > 0 && time.Since(starts[len(starts)-1]) >= run.answers {
				return nil
			}
			return errors.New("no answer")
		}
		s.begin(t.Context())
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		if len(starts) < len(want)+1 {
			t.Fatalf("%d starts, want %d", len(starts), len(want)+1)
		}
		var pauses []time.Duration
		for i, end := range ended[:len(want)] {
			pauses = append(pauses, starts[i+1].Sub(end)/time.Second)
		}
		if !slices.Equal(pauses, want) {
			t.Errorf("pauses of %v s, want %v s", pauses, want)
		}
		if took := ended[8].Sub(starts[8]); took != ready {
			t.Errorf("a server without an answer ran %v, want %v", took, ready)
		}
		s.Stop(t.Context())
	})
}
