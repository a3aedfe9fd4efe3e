package deployment

import (
	"context"
	"errors"
	"fmt"
)

// BeginMove marks records and bucket as places that a move is filling, and returns the
// mark for EndMove. Both must be empty, or in the state that Unfinished returned.
//
// The bucket is marked first, because records without an identity next to a marked
// bucket are refused too.
func (p Pair) BeginMove(ctx context.Context) (Identity, error) {
	mark := New(p.Clock())
	mark.Moving = true
	if err := p.markBucket(ctx, mark); err != nil {
		return Identity{}, err
	}
	return mark, p.MarkMove(ctx, mark)
}

// Unfinished reports whether an unfinished move has left data in the records and in the
// bucket. The error is an *UnfinishedError when there is such data and again is false.
// It is another error when one of the two belongs to a deployment.
func (p Pair) Unfinished(ctx context.Context, again bool) (ofRecords, ofBucket bool, err error) {
	records, bucket, err := p.read(ctx)
	if err != nil {
		return false, false, err
	}
	ofRecords, ofBucket = records != nil && records.Moving, bucket != nil && bucket.Moving
	if ofBucket && records != nil && records.ID == bucket.ID {
		ofRecords = true // EndMove was interrupted
	}
	switch {
	case records != nil && !ofRecords:
		err = fmt.Errorf("%s is not empty, it contains the records of %s: name an empty place", p.RecordsName, records)
	case bucket != nil && !ofBucket:
		err = fmt.Errorf("%s is not empty, it contains the objects of %s: name an empty place", p.BucketName, bucket)
	case (ofRecords || ofBucket) && !again:
		err = &UnfinishedError{p.RecordsName, p.BucketName}
	}
	return ofRecords, ofBucket, err
}

// MarkMove marks the records, whatever identity they have.
func (p Pair) MarkMove(ctx context.Context, mark Identity) error {
	_, version, err := p.recordsIdentity(ctx)
	if err != nil {
		return err
	}
	return p.markRecords(ctx, mark, version)
}

// EndMove marks a move as complete, so that nodes may start. The identity is new, so
// that no node confuses one of the places with its source. The format is that of the
// source's objects.
func (p Pair) EndMove(ctx context.Context, mark, from Identity) (Identity, error) {
	records, bucket, err := p.read(ctx)
	if err != nil {
		return Identity{}, err
	}
	if records == nil || bucket == nil || records.ID != mark.ID || bucket.ID != mark.ID {
		return Identity{}, errors.New("another rowmill migrate has started to fill the same place: stop it, then start this one again with --force")
	}
	settled := Identity{ID: mark.ID, Created: from.Created, Format: from.Format}
	if err := p.MarkMove(ctx, settled); err != nil {
		return Identity{}, err
	}
	return settled, p.markBucket(ctx, settled)
}

// Source returns the identity of a place to move from. The error is a *DifferError or
// an *UnfinishedError when records and bucket do not belong together, and another error
// when there is no deployment.
func (p Pair) Source(ctx context.Context) (Identity, error) {
	records, bucket, err := p.read(ctx)
	switch {
	case err != nil:
		return Identity{}, err
	case evidence{Records: records, Bucket: bucket}.moving():
		return Identity{}, &UnfinishedError{p.RecordsName, p.BucketName}
	case records == nil && bucket == nil:
		return Identity{}, fmt.Errorf("there is no deployment to move at %s and %s: no node was ever started there", p.RecordsName, p.BucketName)
	case records == nil:
		return Identity{}, p.differ(records, bucket, "the records have no identity")
	}
	if err := p.Confirm(ctx, *records); err != nil {
		return Identity{}, err
	}
	return *bucket, nil // the bucket's identity has the format of the objects
}

func (p Pair) differ(records, bucket *Identity, why string) error {
	return &DifferError{Records: records, Bucket: bucket, RecordsName: p.RecordsName, BucketName: p.BucketName, Why: why}
}
