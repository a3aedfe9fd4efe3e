package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

// A process that does not stop is ended in time, and the log names the step. The log
// has a limited number of places: nodes of parallel tests would leave no room for this
// test's.
func TestWatchdog(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ended, began := make(chan time.Duration, 2), time.Now()
		w := &watchdog{
			log: slog.New(slog.NewJSONHandler(&log, nil)), limit: time.Minute,
			end: func() { ended <- time.Since(began) },
		}
		w.arm()
		w.setClosingPart("pipeline")
		time.Sleep(30 * time.Second)
		w.arm() // once for the signal, and once after the wait for it
		if took := <-ended; took < time.Minute-tellTimeout || took > time.Minute {
			t.Errorf("ended after %v, want a minute", took)
		}
		var line struct{ Msg, Limit, Closing, Running string }
		must.Succeed(t, json.Unmarshal(log.Bytes(), &line))
		if !strings.Contains(line.Msg, "does not stop") || line.Limit != "1m0s" || line.Closing != "pipeline" ||
			!strings.Contains(line.Running, "1 × cmd/rowmill.") {
			t.Errorf("%+v", line)
		}
	})
}

// If the log is blocked, the process is ended too.
func TestWatchdogThatCannotTell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full, log := io.Pipe()
		ended, began := make(chan time.Duration, 2), time.Now()
		w := &watchdog{log: slog.New(slog.NewTextHandler(log, nil)), limit: time.Minute, end: func() { ended <- time.Since(began) }}
		w.arm()
		if took := <-ended; took != time.Minute {
			t.Errorf("ended after %v, want a minute", took)
		}
		_ = full.Close() // now the log is read
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("it was ended twice")
		}
	})
}

// The watchdog does nothing to a process that ended by itself or was not asked to stop.
func TestWatchdogIsDisarmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var early, late watchdog
		for _, w := range []*watchdog{&early, &late} {
			w.log, w.limit, w.end = slog.New(slog.DiscardHandler), time.Minute, func() { t.Error("it was ended") }
		}
		early.arm()
		early.disarm()
		late.disarm()
		late.arm()
		time.Sleep(time.Hour)
	})
}
