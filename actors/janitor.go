package actors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/store/deployment"
)

// janitorName is what nodes are ranked for: the first of them cleans. Where two
// believe to be first they repeat each other's work, which harms nothing.
const janitorName = "janitor"

// janitorRest is how much sooner the next round comes while there is more to do.
const janitorRest = 60

// tidyGrace is what an owner needs to clean up once the end of a job is safe: it
// mostly takes a second, and who comes too early only does the same work.
const tidyGrace = 5 * time.Second

func newJanitor(cfg Config, tidy, announce func(context.Context, string) error, log *slog.Logger) *retention.Janitor {
	begun := time.Now()
	return retention.New(retention.Config{
		Store: cfg.Store, Bucket: cfg.Blob, Log: log, Confirm: cfg.Janitor.Confirm,
		Tidy: tidy, Announce: announce, TidyAfter: 2*cfg.Ownership.Settle + tidyGrace,
		Clock: cfg.Clock, Running: func() time.Duration { return time.Since(begun) },
		Tolerance: cfg.Janitor.ClockTolerance, CatchUp: cfg.Janitor.CatchUp,
		Batch: cfg.Janitor.Batch, OrphanAge: cfg.Janitor.OrphanAge,
	})
}

// clean has the janitor do a round, if this node is the one that cleans. All
// nodes look whether that could be done: each of them takes jobs.
func (n *cleaner) clean(c actor.Context) {
	now, first := n.turn()
	if !now {
		n.timers.after(c, n.cfg.Janitor.Interval, "janitor", n.clean)
		return
	}
	n.tasks.run(c, "remove old data", func(ctx context.Context) step {
		var more bool
		var unknown retention.Unknown
		err := contain.Run(func() (err error) {
			if first {
				more, err = n.janitor.Round(ctx)
				unknown = n.janitor.Unknown()
			} else {
				_, err = n.janitor.Look(ctx)
			}
			return err
		})
		skew := n.janitor.Skew()
		return func(c actor.Context) {
			n.looked(err, skew, unknown)
			pause := n.cfg.Janitor.Interval
			if more {
				pause /= janitorRest
			}
			n.timers.after(c, pause, "janitor", n.clean)
		}
	})
}

// looked publishes what a round has found.
func (n *cleaner) looked(err error, skew time.Duration, unknown retention.Unknown) {
	status := StorageStatus{Unknown: unknown, Skew: skew}
	reason := heldFor(err)
	switch {
	case reason != "":
		status.Held = err
	case err != nil: // it is as it was, for all we know
		status.Held = n.published.storage.Load().Held
	}
	if before := heldFor(n.published.storage.Load().Held); reason == before && reason != "" {
		// It was said when it began.
	} else if reason != "" {
		n.log.Error("NO DATA IS REMOVED", "reason", reason, "err", err)
	} else if err != nil {
		n.log.Warn("removing data that is not kept any longer failed", "err", err)
	} else if before != "" {
		n.log.Info("data is removed again", "reason", before)
	}
	n.metrics.retention.skew.Set(skew.Seconds())
	n.metrics.retention.unknownJobs.Set(float64(unknown.Jobs))
	n.metrics.retention.unknownBytes.Set(float64(unknown.Bytes))
	for _, r := range []string{heldDeployment, heldClock} {
		value := 0.0
		if r == heldFor(status.Held) {
			value = 1
		}
		n.metrics.retention.held.WithLabelValues(r).Set(value)
	}
	n.published.storage.Store(&status)
}

// heldFor is why an error keeps a node from removing data until somebody mends
// it; empty for others, which pass.
func heldFor(err error) string {
	var differ *deployment.DifferError
	var format *deployment.FormatError
	var skew *retention.SkewError
	switch {
	case errors.As(err, &differ), errors.As(err, &format):
		return heldDeployment
	case errors.As(err, &skew):
		return heldClock
	}
	return ""
}
