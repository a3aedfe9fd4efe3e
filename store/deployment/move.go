package deployment

import (
	"context"
	"errors"
	"fmt"
)

// BeginMove marks records and bucket as places that are being filled from elsewhere,
// and returns what EndMove takes. Both have to be empty, or as Unfinished has found
// them.
//
// The bucket is marked first: records without an identity beside a marked bucket are
// refused too.
func (p Pair) BeginMove(ctx context.Context) (Identity, error) {
	mark := New(p.Clock())
	mark.Moving = true
	if err := p.markBucket(ctx, mark); err != nil {
		return Identity{}, err
	}
	return mark, p.MarkMove(ctx, mark)
}

// Unfinished says what a move has left here that was not finished: of the records, of
// the bucket. The error is an *UnfinishedError where there is something and it is not
// to be begun again, and another one where one of them is somebody's.
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
		err = fmt.Errorf("%s is not empty, it holds the records of %s: name an empty place", p.RecordsName, records)
	case bucket != nil && !ofBucket:
		err = fmt.Errorf("%s is not empty, it holds the objects of %s: name an empty place", p.BucketName, bucket)
	case (ofRecords || ofBucket) && !again:
		err = &UnfinishedError{p.RecordsName, p.BucketName}
	}
	return ofRecords, ofBucket, err
}

// MarkMove marks the records, whatever they say.
func (p Pair) MarkMove(ctx context.Context, mark Identity) error {
	_, version, err := p.ofRecords(ctx)
	if err != nil {
		return err
	}
	return p.markRecords(ctx, mark, version)
}

// EndMove says that all has come that was at a place: nodes may start from now on. The
// identity is a new one, so that no node takes half of either place for its own. The
// objects have the format that they had.
func (p Pair) EndMove(ctx context.Context, mark, from Identity) (Identity, error) {
	records, bucket, err := p.read(ctx)
	if err != nil {
		return Identity{}, err
	}
	if records == nil || bucket == nil || records.ID != mark.ID || bucket.ID != mark.ID {
		return Identity{}, errors.New("somebody else has begun to fill the same place meanwhile: look for another rowmill migrate, and begin again with --force")
	}
	settled := Identity{ID: mark.ID, Created: from.Created, Format: from.Format}
	if err := p.MarkMove(ctx, settled); err != nil {
		return Identity{}, err
	}
	return settled, p.markBucket(ctx, settled)
}

// Source is the identity of a place that is to be moved: a *DifferError or an
// *UnfinishedError where records and bucket are no whole, and another error where
// nothing is there.
func (p Pair) Source(ctx context.Context) (Identity, error) {
	records, bucket, err := p.read(ctx)
	switch {
	case err != nil:
		return Identity{}, err
	case evidence{Records: records, Bucket: bucket}.moving():
		return Identity{}, &UnfinishedError{p.RecordsName, p.BucketName}
	case records == nil && bucket == nil:
		return Identity{}, fmt.Errorf("there is nothing to move at %s and %s: no node was ever started there", p.RecordsName, p.BucketName)
	case records == nil:
		return Identity{}, p.differ(records, bucket, "the records say nothing")
	}
	if err := p.Confirm(ctx, *records); err != nil {
		return Identity{}, err
	}
	return *bucket, nil // whose format is that of the objects
}

func (p Pair) differ(records, bucket *Identity, why string) error {
	return &DifferError{Records: records, Bucket: bucket, RecordsName: p.RecordsName, BucketName: p.BucketName, Why: why}
}
