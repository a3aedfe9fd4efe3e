package actors

import (
	"context"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// settleInput keeps the input of a job that is over for as long as another may
// continue it, or removes it. Time is the store's: a node whose clock is wrong
// removes nothing that is wanted. It may be repeated.
func settleInput(ctx context.Context, cfg Config, rec *store.Record) error {
	id := rec.Job.ID
	now, err := cfg.Store.Time(ctx)
	if err != nil {
		return err
	}
	until := rec.EndedAt().Add(cfg.InputRetention)
	if continuable(rec) && now.Before(until) {
		if err := ingest.Keep(ctx, cfg.Blob, rec); err != nil {
			return err
		}
		return cfg.Store.KeepInput(ctx, id, until)
	}
	if err := cfg.Blob.DeletePrefix(ctx, layout.Input(id)); err != nil {
		return err
	}
	return cfg.Store.InputGone(ctx, id, now)
}

// continuable reports whether rows of a job that is over are left to run.
func continuable(rec *store.Record) bool {
	switch {
	case rec.Job.RunType == rowmill.RunEstimate || rec.DataRemoved != nil || rec.InputRemoved != nil:
		return false
	case rec.Job.Status == rowmill.StatusSucceeded:
		return rec.Job.FailedRows > 0
	case rec.Job.FailureReason != nil && rec.Job.FailureReason.Code == rowmill.CodeInvalidInputFile:
		return false // it would be no better
	case rec.Spec.URL != "" && rec.DownloadFinished == nil:
		return false // there is none
	}
	return true
}
