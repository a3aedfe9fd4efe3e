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
	// folderPage is how many jobs one listing asks for, maxFolders how many are
	// looked at for one that the records know: one is enough, and where so many
	// are unknown an operator has to look.
	folderPage, maxFolders = 100, 2000
	// maxNamed is how many records are asked for their result files.
	maxNamed = 100
	// settleTries is how often it is decided anew because another node has
	// decided meanwhile. Each time one of them succeeds.
	settleTries = 16
)

// Settle makes sure that records and bucket belong together, and returns their
// identity. It marks what says nothing yet. The errors are *DifferError, *FormatError
// and *UnfinishedError where a node must not start.
//
// Several nodes may settle at once: the first to mark the records decides.
// Records are marked before the bucket, so that a crash in between leaves what
// the next start completes.
func (p Pair) Settle(ctx context.Context) (Identity, error) {
	for range settleTries {
		settled, err := p.settleOnce(ctx)
		if errors.Is(err, rowmill.ErrConflict) || errors.Is(err, store.ErrOutcomeUnknown) {
			continue
		}
		return settled, err
	}
	return Identity{}, fmt.Errorf("write whose records these are: other nodes did so %d times meanwhile: %w", settleTries, rowmill.ErrConflict)
}

func (p Pair) settleOnce(ctx context.Context) (Identity, error) {
	e, err := p.evidence(ctx)
	if err != nil {
		return Identity{}, err
	}
	settled, err := p.decide(e, New(p.Clock()))
	if err != nil {
		return Identity{}, err
	}
	if e.Records == nil {
		if err := p.markRecords(ctx, settled, 0); err != nil {
			return Identity{}, err
		}
	}
	if e.Bucket == nil {
		if err := p.markBucket(ctx, settled); err != nil {
			return Identity{}, err
		}
	}
	if e.Records != nil && e.Bucket != nil {
		return settled, nil
	}
	return settled, p.Confirm(ctx, settled) // another store's node may have marked the bucket too
}

// decide is Evidence.Decide with the names in the errors.
func (p Pair) decide(e evidence, fresh Identity) (Identity, error) {
	settled, err := e.decide(fresh)
	var differ *DifferError
	var format *FormatError
	var unfinished *UnfinishedError
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

// Confirm looks whether both still have an identity: a store may have been
// emptied, restored or exchanged under a node that runs. A *DifferError says
// that they have not; other errors that it could not be found out.
func (p Pair) Confirm(ctx context.Context, own Identity) error {
	records, bucket, err := p.read(ctx)
	if err != nil {
		return err
	}
	why := ""
	switch {
	case bucket != nil && bucket.Format > Format:
		return &FormatError{Found: *bucket, BucketName: p.BucketName}
	case records == nil:
		why = "the records were lost or exchanged while the node ran"
	case bucket == nil:
		why = "the bucket was emptied or exchanged while the node ran"
	case records.ID != own.ID || bucket.ID != own.ID:
		why = "one of them was exchanged while the node ran, which is of " + own.ID
	default:
		return nil
	}
	return &DifferError{Records: records, Bucket: bucket, RecordsName: p.RecordsName, BucketName: p.BucketName, Why: why}
}

// Adopt makes one deployment of both on an operator's word: what one of them
// says is given to the other; where both differ both get a new identity, which
// whoever else uses one of them notices. It returns what they said before.
func (p Pair) Adopt(ctx context.Context) (settled Identity, records, bucket *Identity, err error) {
	records, version, err := p.ofRecords(ctx)
	if err == nil {
		bucket, err = p.ofBucket(ctx)
	}
	if err != nil {
		return Identity{}, nil, nil, err
	}
	switch {
	case evidence{Records: records, Bucket: bucket}.moving():
		return Identity{}, records, bucket, &UnfinishedError{p.RecordsName, p.BucketName}
	case bucket != nil && bucket.Format > Format:
		return Identity{}, records, bucket, &FormatError{Found: *bucket, BucketName: p.BucketName}
	case records != nil && (bucket == nil || bucket.ID == records.ID):
		settled = *records
	case records == nil && bucket != nil:
		settled = *bucket
	default:
		settled = New(p.Clock())
	}
	if records == nil || records.ID != settled.ID {
		err = p.markRecords(ctx, settled, version)
	}
	if err == nil && (bucket == nil || bucket.ID != settled.ID) {
		err = p.markBucket(ctx, settled)
	}
	return settled, records, bucket, err
}

// evidence reads both identities and, unless both are there, what shows
// whether they belong together.
func (p Pair) evidence(ctx context.Context) (e evidence, err error) {
	if e.Records, e.Bucket, err = p.read(ctx); err != nil || e.Records != nil && e.Bucket != nil {
		return e, err
	}
	if err := p.lookAtBucket(ctx, &e); err != nil || e.Known > 0 {
		return e, err
	}
	return e, p.lookAtRecords(ctx, &e)
}

// lookAtBucket looks for a job with objects that the records know.
func (p Pair) lookAtBucket(ctx context.Context, e *evidence) error {
	after := ""
	for looked := 0; looked < maxFolders; looked += folderPage {
		ids, err := p.Bucket.Folders(ctx, layout.Jobs, after, folderPage)
		if err != nil {
			return fmt.Errorf("list jobs in the bucket: %w", err)
		}
		for _, id := range ids {
			switch known, err := p.knows(ctx, id); {
			case err != nil:
				return err
			case known:
				e.Known++
				return nil
			}
			objects, err := p.Bucket.List(ctx, layout.Job(id))
			if err != nil {
				return fmt.Errorf("list the objects of job %s: %w", id, err)
			}
			if len(objects) > 0 {
				e.Unknown++
			}
			after = id
		}
		if len(ids) < folderPage {
			return nil
		}
	}
	return nil
}

// knows reports whether the records have a job.
func (p Pair) knows(ctx context.Context, id string) (bool, error) {
	_, err := p.Records.Get(ctx, id)
	if errors.Is(err, rowmill.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// lookAtRecords looks for a result file that a record names and the bucket has.
func (p Pair) lookAtRecords(ctx context.Context, e *evidence) error {
	accounts, err := p.Records.Holders(ctx)
	if err != nil {
		return err
	}
	looked := 0
	for _, account := range accounts {
		ids, err := p.Records.Held(ctx, account, p.Clock().AddDate(100, 0, 0), maxNamed)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if looked++; looked > maxNamed {
				return nil
			}
			rec, err := p.Records.Get(ctx, id)
			if err != nil {
				return err
			}
			full, named := rec.Artifacts[layout.Full]
			if !named || rec.DataRemoved != nil {
				continue
			}
			switch _, err := p.Bucket.Stat(ctx, full.Key); {
			case err == nil:
				e.Present++
				return nil
			case !errors.Is(err, rowmill.ErrNotFound):
				return fmt.Errorf("look for a result file: %w", err)
			}
			e.Missing++
		}
	}
	return nil
}
