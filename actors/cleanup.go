package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// notifyEnded calls Config.Ended for a job that has ended. Each cleanup calls notifyEnded
// first, and is repeated until Ended has succeeded once. If a job is cleaned up once more,
// because an object was stored late, notifyEnded does nothing.
func (p *deps) notifyEnded(ctx context.Context, rec *store.Record) error {
	if p.cfg.Ended == nil || rec.IsCleanedUp() {
		return nil
	}
	return p.cfg.Ended(ctx, rec)
}

// notifyIfEnded reads the record of a job and, if the job has ended, calls notifyEnded.
func (p *deps) notifyIfEnded(ctx context.Context, job string) error {
	if p.cfg.Ended == nil {
		return nil
	}
	rec, err := p.cfg.Store.Get(ctx, job)
	if err != nil || !rec.Job.Status.IsTerminal() {
		return err
	}
	return p.notifyEnded(ctx, &rec)
}

// tidyJob removes data that a finished job no longer needs: the input, if no rows are
// left to run, and after a success the parts, because the artifacts replace them. A job
// that failed or was cancelled keeps its recorded parts until retention removes them,
// because clients can still read single rows from them.
func (p *deps) tidyJob(ctx context.Context, job string) error {
	return panics.Catch(func() error { return p.removeUnneededData(ctx, job) })
}

// removeUnneededData does the work of tidyJob; it may panic.
func (p *deps) removeUnneededData(ctx context.Context, job string) error {
	cfg := p.cfg
	rec, err := p.readRecord(ctx, job)
	status := rec.Job.Status
	switch {
	case err != nil:
		return err
	case !status.IsTerminal():
		return fmt.Errorf("%w: the job is %s again, so its data is kept", errForgotten, status)
	}
	if err := p.notifyEnded(ctx, &rec); err != nil {
		return err
	}
	if rec.Epoch == 0 { // cancelled before a node owned it
		p.endTrace(&rec)
	}
	switch {
	case status == rowmill.StatusSucceeded:
		if rec, err = p.repairResults(ctx, rec); err != nil {
			return err // the parts must stay: the results cannot be read, so only the parts have the answers
		}
		err = errors.Join(cfg.Store.DropParts(ctx, job), p.dropParts(ctx, rec, nil), p.dropOtherResults(ctx, rec))
	case !rec.IsCutIntoShards(): // rows ran while the input was being read: the store has only parts taken over from an earlier job
		var kept []store.Part
		if kept, err = cfg.Store.ListParts(ctx, job); err == nil {
			err = p.dropParts(ctx, rec, kept)
		}
	}
	if err != nil {
		return err
	}
	return keepOrRemoveInput(ctx, cfg, &rec) // the last step: after this call no cleanup selects the job again
}

// repairResults checks that the results of a succeeded job can be read. If a result
// cannot be read, it makes the result again from the job's parts, which are removed
// only later.
func (p *deps) repairResults(ctx context.Context, rec store.Record) (store.Record, error) {
	if rec.IsCleanedUp() {
		return rec, nil
	}
	for _, name := range []string{commit.MakeFull, commit.MakeRows} {
		made, ok := rec.Artifacts[name]
		if !ok {
			continue
		}
		err := archive.VerifyWritten(ctx, p.cfg.Blob, blob.ObjectInfo{Key: made.Key, Size: made.Size})
		if err == nil {
			continue
		}
		if !errors.Is(err, archive.ErrNotStored) {
			return rec, err
		}
		p.log.Error("a result cannot be read, so it is made again from the parts", "job", rec.Job.ID, "result", name, "err", err)
		if rec, err = p.rebuildArtifact(ctx, rec, name); err != nil {
			return rec, fmt.Errorf("make result %s again: %w", name, err)
		}
	}
	return rec, nil
}

// rebuildArtifact makes an artifact of a succeeded job again from its parts, and records it.
func (p *deps) rebuildArtifact(ctx context.Context, rec store.Record, name string) (store.Record, error) {
	parts, err := p.cfg.Store.ListParts(ctx, rec.Job.ID)
	if err != nil || len(parts) == 0 {
		return rec, cmp.Or(err, errors.New("the job has no parts any more"))
	}
	first, err := p.cfg.Blob.Open(ctx, parts[0].Key)
	if err != nil {
		return rec, err
	}
	schema, err := results.ReadSchema(first)
	if err = errors.Join(err, first.Close()); err != nil {
		return rec, err
	}
	again := &commit.Compaction{Make: name, Key: layout.NewArtifactKey(rec.Job.ID, name, rec.Epoch), Schema: schema, Rows: rec.Job.RowsDone, Parts: parts}
	size, err := again.Run(ctx, p.cfg.Blob, func(_ context.Context, do func() error) error { return do() })
	if err != nil {
		return rec, err
	}
	return p.cfg.Store.ReplaceArtifact(ctx, rec.Job.ID, name, rec.Artifacts[name], store.Artifact{Key: again.Key, Size: size})
}

// dropParts removes the part objects of a job, except the parts in kept and the parts
// of a later owner. The store that this node reads may not know the later owner yet.
func (p *deps) dropParts(ctx context.Context, rec store.Record, kept []store.Part) error {
	prefix := layout.PartsPrefix(rec.Job.ID)
	objects, err := p.cfg.Blob.List(ctx, prefix)
	if err != nil {
		return err
	}
	stays := func(o blob.ObjectInfo) bool {
		return layout.EpochFromKey(o.Key) > rec.Epoch || slices.ContainsFunc(kept, func(p store.Part) bool { return p.Key == o.Key })
	}
	if !slices.ContainsFunc(objects, stays) {
		return p.cfg.Blob.DeletePrefix(ctx, prefix)
	}
	var errs []error
	for _, o := range objects {
		if !stays(o) {
			errs = append(errs, p.cfg.Blob.Delete(ctx, o.Key))
		}
	}
	return errors.Join(errs...)
}

// dropOtherResults removes results that the record does not name and that this or an
// earlier owner made. Results of a later owner stay, because this node may not know
// that owner yet.
func (p *deps) dropOtherResults(ctx context.Context, rec store.Record) error {
	var errs []error
	for _, name := range []string{layout.Full, layout.Rows} { // not the subsets of the results: a request may be making a subset now
		made, ok := rec.Artifacts[name]
		if !ok {
			continue
		}
		objects, err := p.cfg.Blob.List(ctx, path.Dir(made.Key)+"/")
		errs = append(errs, err)
		for _, o := range objects {
			if strings.HasPrefix(path.Base(o.Key), name+"-") && o.Key != made.Key && layout.EpochFromKey(o.Key) <= rec.Epoch {
				errs = append(errs, p.cfg.Blob.Delete(ctx, o.Key))
			}
		}
	}
	return errors.Join(errs...)
}

// keepOrRemoveInput removes the input of a finished job, or keeps it as long as another job
// may continue it. It uses the store's clock, so that a node with a wrong clock removes
// no input that is still needed. A repeated call does no harm.
func keepOrRemoveInput(ctx context.Context, cfg Config, rec *store.Record) error {
	id := rec.Job.ID
	now, err := cfg.Store.Time(ctx)
	if err != nil {
		return err
	}
	until := rec.EndedAt().Add(cfg.Inputs.Retention)
	if isContinuable(rec) && now.Before(until) {
		if err := ingest.KeepInputForResume(ctx, cfg.Blob, rec); err != nil {
			return err
		}
		return cfg.Store.KeepInput(ctx, id, until)
	}
	if err := cfg.Blob.DeletePrefix(ctx, layout.InputPrefix(id)); err != nil {
		return err
	}
	return cfg.Store.MarkInputRemoved(ctx, id, now)
}

// isContinuable reports whether another job can run rows of a job that has ended.
func isContinuable(rec *store.Record) bool {
	switch {
	case rec.DataRemoved != nil || rec.InputRemoved != nil || rec.SpecDamaged:
		return false
	case rec.Job.Status == rowmill.StatusSucceeded:
		return rec.Job.FailedRows > 0 || rec.Job.HasOtherRows() || rec.Spec.Estimate
	case rec.Spec.Estimate:
		return false
	case rec.Job.FailureReason != nil && rec.Job.FailureReason.Code == rowmill.CodeInvalidInputFile:
		return false // the same input would fail again
	case rec.Spec.URL != "" && rec.DownloadFinished == nil:
		return false // the input was never downloaded
	}
	return true
}
