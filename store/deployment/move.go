package deployment

import (
	"context"
	"errors"
	"fmt"
)

// BeginMove gives records and bucket an identity that says that a move is filling them,
// and returns this mark for EndMove. Both must be empty or filled by an unfinished move,
// as FindUnfinishedMove reports.
//
// The bucket is marked first, because a node also does not start on a marked bucket with
// records that are not marked yet.
func (p Storage) BeginMove(ctx context.Context) (Identity, error) {
	mark := NewIdentity(p.Clock())
	mark.Moving = true
	if err := p.writeBucketIdentity(ctx, mark); err != nil {
		return Identity{}, err
	}
	return mark, p.MarkMove(ctx, mark)
}

// FindUnfinishedMove reports whether an unfinished move has left data in the records and in the
// bucket. restart says that the caller will move again and remove this data. If there is
// such data and restart is false, the error is an *UnfinishedMoveError. If the records or
// the bucket already belong to a deployment, FindUnfinishedMove returns another error.
func (p Storage) FindUnfinishedMove(ctx context.Context, restart bool) (ofRecords, ofBucket bool, err error) {
	records, bucket, err := p.readIdentities(ctx)
	if err != nil {
		return false, false, err
	}
	ofRecords, ofBucket = records != nil && records.Moving, bucket != nil && bucket.Moving
	if ofBucket && records != nil && records.ID == bucket.ID {
		ofRecords = true // an earlier EndMove was interrupted between its two writes
	}
	switch {
	case records != nil && !ofRecords:
		err = fmt.Errorf("%s is not empty, it contains the records of %s: name an empty place", p.RecordsName, records)
	case bucket != nil && !ofBucket:
		err = fmt.Errorf("%s is not empty, it contains the objects of %s: name an empty place", p.BucketName, bucket)
	case (ofRecords || ofBucket) && !restart:
		err = &UnfinishedMoveError{p.RecordsName, p.BucketName}
	}
	return ofRecords, ofBucket, err
}

// MarkMove writes the mark of a move to the records. It replaces any earlier identity.
func (p Storage) MarkMove(ctx context.Context, mark Identity) error {
	_, version, err := p.readRecordsIdentity(ctx)
	if err != nil {
		return err
	}
	return p.writeRecordsIdentity(ctx, mark, version)
}

// EndMove gives records and bucket their final identity, so that nodes may start. Its id
// is the new id of mark, so that no node confuses the target with the source. Its format
// is the format of the source's objects.
func (p Storage) EndMove(ctx context.Context, mark, source Identity) (Identity, error) {
	records, bucket, err := p.readIdentities(ctx)
	if err != nil {
		return Identity{}, err
	}
	if records == nil || bucket == nil || records.ID != mark.ID || bucket.ID != mark.ID {
		return Identity{}, errors.New("another rowmill migrate has started to fill the same place: stop it, then start this one again with --force")
	}
	settled := Identity{ID: mark.ID, Created: source.Created, Format: source.Format}
	if err := p.MarkMove(ctx, settled); err != nil {
		return Identity{}, err
	}
	return settled, p.writeBucketIdentity(ctx, settled)
}

// ReadSourceIdentity returns the identity of a pair from which to move. The error is a *MismatchError
// if records and bucket do not belong together, an *UnfinishedMoveError if a move into them is
// not complete, and another error if there is no deployment.
func (p Storage) ReadSourceIdentity(ctx context.Context) (Identity, error) {
	records, bucket, err := p.readIdentities(ctx)
	switch {
	case err != nil:
		return Identity{}, err
	case matchEvidence{Records: records, Bucket: bucket}.hasUnfinishedMove():
		return Identity{}, &UnfinishedMoveError{p.RecordsName, p.BucketName}
	case records == nil && bucket == nil:
		return Identity{}, fmt.Errorf("there is no deployment to move at %s and %s: no node was ever started there", p.RecordsName, p.BucketName)
	case records == nil:
		return Identity{}, p.newMismatchError(records, bucket, "the records have no identity")
	}
	if err := p.ConfirmIdentity(ctx, *records); err != nil {
		return Identity{}, err
	}
	return *bucket, nil // the bucket's identity has the format of the objects
}

func (p Storage) newMismatchError(records, bucket *Identity, why string) error {
	return &MismatchError{Records: records, Bucket: bucket, RecordsName: p.RecordsName, BucketName: p.BucketName, Why: why}
}
