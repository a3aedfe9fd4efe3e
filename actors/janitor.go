package actors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store/deployment"
)

// janitorName takes the place of a job's ID when nodes are ranked for the janitor's
// work: the node that comes first removes expired data. If two nodes both find
// themselves first, they repeat each other's work, which is harmless.
const janitorName = "janitor"

// janitorRest shortens the pause of the janitor while more data can be removed: the
// pause is Config.Janitor.Interval divided by janitorRest.
const janitorRest = 60

// tidyGrace is how long the janitor leaves the cleanup of an ended job to the owner,
// counted from the time when the end of the job cannot be lost any more. Owners mostly
// clean up within a second; a janitor that starts earlier only repeats their work.
const tidyGrace = 5 * time.Second

func newJanitor(cfg Config, tidy, announce func(context.Context, string) error, log *slog.Logger) *retention.Janitor {
	begun := time.Now()
	return retention.New(retention.Config{
		Store: cfg.Store, Bucket: cfg.Blob, Log: log, Confirm: cfg.Janitor.Confirm,
		Tidy: tidy, Announce: announce, TidyAfter: 2*cfg.Ownership.Settle + tidyGrace,
		Clock: cfg.Clock, Running: func() time.Duration { return time.Since(begun) },
		Tolerance: cfg.Janitor.ClockTolerance, CatchUp: cfg.Janitor.CatchUp,
		Batch: cfg.Janitor.Batch, OrphanAge: cfg.Janitor.OrphanAge,
		Scrub: int64(float64(cfg.Janitor.ScrubRate) * cfg.Janitor.Interval.Seconds()),
	})
}

// runJanitor runs a round of the janitor if this node comes first in the ranking. Other
// nodes only check whether they would be allowed to remove data, and publish the
// result.
func (n *cleaner) runJanitor(c actor.Context) {
	now, first := n.mayClean()
	if !now {
		n.timers.runAfter(c, n.cfg.Janitor.Interval, "janitor", n.runJanitor)
		return
	}
	n.tasks.run(c, "remove old data", func(ctx context.Context) mailboxStep {
		var more bool
		var found retention.SweepFindings
		err := panics.Catch(func() (err error) {
			if first {
				more, err = n.janitor.Round(ctx)
				found = n.janitor.Findings()
			} else {
				_, err = n.janitor.CheckRemovalAllowed(ctx)
			}
			return err
		})
		skew := n.janitor.Skew()
		return func(c actor.Context) {
			n.publishRound(err, skew, found)
			pause := n.cfg.Janitor.Interval
			if more {
				pause /= janitorRest
			}
			n.timers.runAfter(c, pause, "janitor", n.runJanitor)
		}
	})
}

// publishRound publishes the result of a round of the janitor, and logs its changes.
func (n *cleaner) publishRound(err error, skew time.Duration, found retention.SweepFindings) {
	status := StorageStatus{Findings: found, Skew: skew}
	reason := holdReason(err)
	switch {
	case reason != "":
		status.Held = err
	case err != nil: // this error does not show whether the earlier reason still holds, so keep the reason
		status.Held = n.published.storage.Load().Held
	}
	if before := holdReason(n.published.storage.Load().Held); reason == before && reason != "" {
		// The same reason was logged when it began.
	} else if reason != "" {
		n.log.Error("NO DATA IS REMOVED", "reason", reason, "err", err)
	} else if err != nil {
		n.log.Warn("removing expired data failed, will be tried again", "err", err)
	} else if before != "" {
		n.log.Info("the removal of expired data has resumed", "reason", before)
	}
	n.metrics.retention.skew.Set(skew.Seconds())
	n.metrics.retention.unknownJobs.Set(float64(found.Jobs))
	n.metrics.retention.unknownBytes.Set(float64(found.Bytes))
	n.metrics.retention.damaged.Set(float64(found.Damaged))
	for _, r := range []string{heldDeployment, heldClock} {
		value := 0.0
		if r == holdReason(status.Held) {
			value = 1
		}
		n.metrics.retention.held.WithLabelValues(r).Set(value)
	}
	n.published.storage.Store(&status)
}

// holdReason returns the label of an error after which a node removes no data until an
// operator intervenes; empty for other errors, which end by themselves.
func holdReason(err error) string {
	var differ *deployment.MismatchError
	var format *deployment.NewerFormatError
	var skew *retention.SkewError
	switch {
	case errors.As(err, &differ), errors.As(err, &format):
		return heldDeployment
	case errors.As(err, &skew):
		return heldClock
	}
	return ""
}
