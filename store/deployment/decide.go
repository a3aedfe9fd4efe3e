package deployment

import "fmt"

// matchEvidence holds the facts that show whether records and a bucket belong together:
// identities, and counts of jobs and result files.
type matchEvidence struct {
	Records, Bucket *Identity // nil when there is no identity
	// Known counts jobs with objects in the bucket that the records know, and Unknown
	// counts such jobs that the records do not know. Ids are random, so one known job is
	// proof.
	Unknown, Known int
	// Present counts result files of the records that the bucket has, and Missing counts
	// result files of the records that the bucket lacks.
	Missing, Present int
}

// chooseIdentity returns the identity that records and bucket must have: an existing identity if
// there is one, else fresh. If they do not belong together, the error is a *MismatchError.
// In this table A and B are identities, and "-" means that there is none:
//
//	records  bucket    belong together by proof   both without data    else
//	A        A         yes                        yes                  yes
//	A        B         no                         no                   no
//	A        -         the bucket gets A          the bucket gets A    no: another bucket, or an emptied one
//	-        B         the records get B          no                   no: another store, or an emptied one
//	-        -         both get a fresh one       both get a fresh one no
//
// In all these cases, the error is an *UnfinishedMoveError if a move is still filling the
// records or the bucket.
//
// Records without an identity are refused if the bucket has one, even when there is no
// data: the bucket may belong to a deployment that has just started. Records with an
// identity and a bucket without one are accepted: a crash of EnsureIdentity can leave this
// state, because EnsureIdentity writes the identity of the records first.
func (e matchEvidence) chooseIdentity(fresh Identity) (Identity, error) {
	proof := e.Known+e.Present > 0
	empty := e.Unknown+e.Missing == 0
	differ := func(why string) error { return &MismatchError{Records: e.Records, Bucket: e.Bucket, Why: why} }
	switch {
	case e.hasUnfinishedMove():
		return Identity{}, &UnfinishedMoveError{}
	case e.Bucket != nil && e.Bucket.Format > Format:
		return Identity{}, &NewerFormatError{Found: *e.Bucket}
	case e.Records != nil && e.Bucket != nil && e.Records.ID == e.Bucket.ID:
		return *e.Bucket, nil
	case e.Records != nil && e.Bucket != nil:
		return Identity{}, differ("they belong to different deployments")
	case e.Records != nil && (proof || empty):
		return *e.Records, nil
	case e.Records != nil:
		return Identity{}, differ(fmt.Sprintf("the bucket is not the bucket of these records, or it was emptied: %s", e.describeCounts()))
	case e.Bucket != nil && proof:
		return *e.Bucket, nil
	case e.Bucket != nil:
		return Identity{}, differ(fmt.Sprintf("the records are not those of this bucket, or they were lost: %s", e.describeCounts()))
	case proof || empty:
		return fresh, nil
	}
	return Identity{}, differ(fmt.Sprintf("neither has an identity, and no job shows that they belong together: %s", e.describeCounts()))
}

// hasUnfinishedMove reports whether a move is still filling the records or the bucket.
func (e matchEvidence) hasUnfinishedMove() bool {
	return e.Records != nil && e.Records.Moving || e.Bucket != nil && e.Bucket.Moving
}

func (e matchEvidence) describeCounts() string {
	return fmt.Sprintf("the records know none of the %d examined jobs with objects; %d of the result files that the records name are missing", e.Unknown, e.Missing)
}

// A MismatchError means that records and bucket do not belong together.
type MismatchError struct {
	Records, Bucket         *Identity // nil when there is no identity
	RecordsName, BucketName string
	Why                     string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("records and objects do not belong together: %s. Records at %s: %s; objects in %s: %s. "+
		"Correct store.url, store.prefix, objects.url or data, or restore what was lost; "+
		"if they do belong together, run `rowmill storage adopt` with the same settings",
		e.Why, e.RecordsName, describeIdentity(e.Records), e.BucketName, describeIdentity(e.Bucket))
}

func describeIdentity(i *Identity) string {
	if i == nil {
		return "no identity yet"
	}
	return i.String()
}

// An UnfinishedMoveError means that a move into these places is not complete.
type UnfinishedMoveError struct{ RecordsName, BucketName string }

func (e *UnfinishedMoveError) Error() string {
	return fmt.Sprintf("the move to %s and %s is not complete: rowmill migrate still runs, or was interrupted; "+
		"wait for it, or run it again with --force, which empties them first", e.RecordsName, e.BucketName)
}

// A NewerFormatError means that a later version wrote the bucket.
type NewerFormatError struct {
	Found      Identity
	BucketName string
}

func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("the objects in %s have format %d, this program reads format %d: start the version of rowmill that wrote them",
		e.BucketName, e.Found.Format, Format)
}
