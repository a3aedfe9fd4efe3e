package deployment

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

const (
	// folderPage is the number of jobs in one listing. maxExaminedJobs is how many jobs in
	// the bucket are examined at most to find a job that the records know. One known job
	// is proof. If all examined jobs are unknown, an operator must decide.
	folderPage, maxExaminedJobs = 100, 2000
	// maxExaminedResults is how many records are examined at most to find a result file that the
	// bucket has.
	maxExaminedResults = 100
	// settleTries is how often EnsureIdentity decides again after a conflict with another
	// node. In each conflict, one of the nodes succeeds.
	settleTries = 16
)

// EnsureIdentity verifies that records and bucket belong together and returns their identity. If
// one of the two has no identity, EnsureIdentity writes it. The errors *MismatchError, *NewerFormatError
// and *UnfinishedMoveError mean that a node must not start.
//
// Several nodes may call EnsureIdentity at the same time: the node that first writes the identity
// of the records decides. EnsureIdentity writes it before the identity of the bucket, so that the
// next start can complete the work after a crash between the two writes.
func (p Storage) EnsureIdentity(ctx context.Context) (Identity, error) {
	for range settleTries {
		settled, err := p.tryEnsureIdentity(ctx)
		if errors.Is(err, rowmill.ErrConflict) || errors.Is(err, store.ErrOutcomeUnknown) {
			continue
		}
		return settled, err
	}
	return Identity{}, fmt.Errorf("write the deployment id to the record store: other nodes wrote it %d times meanwhile; start the node again: %w", settleTries, rowmill.ErrConflict)
}

func (p Storage) tryEnsureIdentity(ctx context.Context) (Identity, error) {
	e, err := p.gatherEvidence(ctx)
	if err != nil {
		return Identity{}, err
	}
	settled, err := p.chooseIdentity(e, NewIdentity(p.Clock()))
	if err != nil {
		return Identity{}, err
	}
	if e.Records == nil {
		if err := p.writeRecordsIdentity(ctx, settled, 0); err != nil {
			return Identity{}, err
		}
	}
	if e.Bucket == nil {
		if err := p.writeBucketIdentity(ctx, settled); err != nil {
			return Identity{}, err
		}
	}
	if e.Records != nil && e.Bucket != nil {
		return settled, nil
	}
	return settled, p.ConfirmIdentity(ctx, settled) // meanwhile a node that uses another store may have marked the bucket
}

// chooseIdentity calls matchEvidence.chooseIdentity and adds the names of records and bucket to the error.
func (p Storage) chooseIdentity(e matchEvidence, fresh Identity) (Identity, error) {
	settled, err := e.chooseIdentity(fresh)
	var differ *MismatchError
	var format *NewerFormatError
	var unfinished *UnfinishedMoveError
	switch {
	case errors.As(err, &unfinished):
		unfinished.RecordsName, unfinished.BucketName = p.RecordsName, p.BucketName
	case errors.As(err, &differ):
		differ.RecordsName, differ.BucketName = p.RecordsName, p.BucketName
	case errors.As(err, &format):
		format.BucketName = p.BucketName
	}
	return settled, err
}

// ConfirmIdentity checks whether records and bucket still have the identity own. A store may be
// emptied, restored or exchanged while a node runs. A *MismatchError means that an identity
// has changed; other errors mean that the check failed.
func (p Storage) ConfirmIdentity(ctx context.Context, own Identity) error {
	records, bucket, err := p.readIdentities(ctx)
	if err != nil {
		return err
	}
	why := ""
	switch {
	case bucket != nil && bucket.Format > Format:
		return &NewerFormatError{Found: *bucket, BucketName: p.BucketName}
	case records == nil:
		why = "the records were lost or exchanged while the node ran"
	case bucket == nil:
		why = "the bucket was emptied or exchanged while the node ran"
	case records.ID != own.ID || bucket.ID != own.ID:
		why = "the records or the bucket were exchanged while the node ran; the node belongs to " + own.ID
	default:
		return nil
	}
	return &MismatchError{Records: records, Bucket: bucket, RecordsName: p.RecordsName, BucketName: p.BucketName, Why: why}
}

// AdoptIdentity joins records and bucket into one deployment, on an operator's request. If the
// records or the bucket have no identity, they get the identity of the other. If both
// have one and they differ, both get a new identity. Nodes of another deployment that
// use one of the two then find the new identity. AdoptIdentity returns the earlier identities.
func (p Storage) AdoptIdentity(ctx context.Context) (settled Identity, records, bucket *Identity, err error) {
	records, version, err := p.readRecordsIdentity(ctx)
	if err == nil {
		bucket, err = p.readBucketIdentity(ctx)
	}
	if err != nil {
		return Identity{}, nil, nil, err
	}
	switch {
	case matchEvidence{Records: records, Bucket: bucket}.hasUnfinishedMove():
		return Identity{}, records, bucket, &UnfinishedMoveError{p.RecordsName, p.BucketName}
	case bucket != nil && bucket.Format > Format:
		return Identity{}, records, bucket, &NewerFormatError{Found: *bucket, BucketName: p.BucketName}
	case records != nil && (bucket == nil || bucket.ID == records.ID):
		settled = *records
	case records == nil && bucket != nil:
		settled = *bucket
	default:
		settled = NewIdentity(p.Clock())
	}
	if records == nil || records.ID != settled.ID {
		err = p.writeRecordsIdentity(ctx, settled, version)
	}
	if err == nil && (bucket == nil || bucket.ID != settled.ID) {
		err = p.writeBucketIdentity(ctx, settled)
	}
	return settled, records, bucket, err
}

// gatherEvidence reads the identities of records and bucket. If an identity is missing,
// gatherEvidence also counts jobs and result files that show whether records and bucket
// belong together.
func (p Storage) gatherEvidence(ctx context.Context) (e matchEvidence, err error) {
	if e.Records, e.Bucket, err = p.readIdentities(ctx); err != nil || e.Records != nil && e.Bucket != nil {
		return e, err
	}
	if err := p.countJobs(ctx, &e); err != nil || e.Known > 0 {
		return e, err
	}
	return e, p.countResults(ctx, &e)
}

// countJobs searches the bucket for a job that the records know, and counts this job in
// e.Known. It counts jobs with objects that the records do not know in e.Unknown.
func (p Storage) countJobs(ctx context.Context, e *matchEvidence) error {
	after := ""
	for looked := 0; looked < maxExaminedJobs; looked += folderPage {
		ids, err := p.Bucket.Folders(ctx, layout.Jobs, after, folderPage)
		if err != nil {
			return fmt.Errorf("list jobs in the bucket: %w", err)
		}
		for _, id := range ids {
			after = id
			if !rowmill.IsJobID(id) { // Rowmill did not make this folder
				continue
			}
			switch known, err := p.hasRecord(ctx, id); {
			case err != nil:
				return err
			case known:
				e.Known++
				return nil
			}
			objects, err := p.Bucket.List(ctx, layout.JobPrefix(id))
			if err != nil {
				return fmt.Errorf("list the objects of job %s: %w", id, err)
			}
			if len(objects) > 0 {
				e.Unknown++
			}
		}
		if len(ids) < folderPage {
			return nil
		}
	}
	return nil
}

// hasRecord reports whether the records have a job.
func (p Storage) hasRecord(ctx context.Context, id string) (bool, error) {
	_, err := p.Records.Get(ctx, id)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return false, nil
	case errors.Is(err, store.ErrDamaged):
		return true, nil
	}
	return err == nil, err
}

// countResults searches the records for a result file that the bucket has, and counts
// this file in e.Present. It counts result files that the bucket lacks in e.Missing.
func (p Storage) countResults(ctx context.Context, e *matchEvidence) error {
	accounts, err := p.Records.AccountsWithData(ctx)
	if err != nil {
		return err
	}
	looked := 0
	for _, account := range accounts {
		ids, err := p.Records.RetainedJobs(ctx, account, p.Clock().AddDate(100, 0, 0), maxExaminedResults)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if looked++; looked > maxExaminedResults {
				return nil
			}
			rec, err := p.Records.Get(ctx, id)
			if errors.Is(err, store.ErrDamaged) {
				continue
			}
			if err != nil {
				return err
			}
			full, recorded := rec.Artifacts[layout.Full]
			if !recorded || rec.DataRemoved != nil {
				continue
			}
			switch _, err := p.Bucket.Stat(ctx, full.Key); {
			case err == nil:
				e.Present++
				return nil
			case !errors.Is(err, rowmill.ErrNotFound):
				return fmt.Errorf("check a result file: %w", err)
			}
			e.Missing++
		}
	}
	return nil
}
