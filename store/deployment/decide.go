package deployment

import "fmt"

// evidence is what is known of records and a bucket before it is decided
// whether they belong together.
type evidence struct {
	Records, Bucket *Identity // nil: they say nothing
	// Unknown and Known are jobs with objects in the bucket of which the
	// records know nothing, or something. Ids are random: to know a single one
	// is proof.
	Unknown, Known int
	// Missing and Present are result files that the records name, and which the
	// bucket does not have, or has.
	Missing, Present int
}

// decide returns the identity that both shall have, which is one of theirs
// wherever there is one, or a *DifferError. fresh is what to call a deployment
// that begins now.
//
//	records  bucket    belong together by proof   both without data    else
//	A        A         yes                        yes                  yes
//	A        B         no                         no                   no
//	A        -         the bucket gets A          the bucket gets A    no: another bucket, or an emptied one
//	-        B         the records get B          no                   no: another store, or an emptied one
//	-        -         both get a fresh one       both get a fresh one no
//
// Whatever else they say, a node does not start on what is still being moved there.
//
// Records without an identity beside a bucket that has one are refused even
// where there is no data: the bucket may be that of a deployment that has just
// begun. The reverse is harmless, and what a crash in between leaves behind,
// since records are marked first.
func (e evidence) decide(fresh Identity) (Identity, error) {
	proof := e.Known+e.Present > 0
	empty := e.Unknown+e.Missing == 0
	differ := func(why string) error { return &DifferError{Records: e.Records, Bucket: e.Bucket, Why: why} }
	switch {
	case e.moving():
		return Identity{}, &UnfinishedError{}
	case e.Bucket != nil && e.Bucket.Format > Format:
		return Identity{}, &FormatError{Found: *e.Bucket}
	case e.Records != nil && e.Bucket != nil && e.Records.ID == e.Bucket.ID:
		return *e.Bucket, nil
	case e.Records != nil && e.Bucket != nil:
		return Identity{}, differ("they belong to different deployments")
	case e.Records != nil && (proof || empty):
		return *e.Records, nil
	case e.Records != nil:
		return Identity{}, differ(fmt.Sprintf("the bucket is not the one that the records speak of, or it was emptied: %s", e.counts()))
	case e.Bucket != nil && proof:
		return *e.Bucket, nil
	case e.Bucket != nil:
		return Identity{}, differ(fmt.Sprintf("the records are not those of this bucket, or they were lost: %s", e.counts()))
	case proof || empty:
		return fresh, nil
	}
	return Identity{}, differ(fmt.Sprintf("neither says whose it is, and nothing shows that they belong together: %s", e.counts()))
}

// moving reports whether one of them is still to be filled.
func (e evidence) moving() bool {
	return e.Records != nil && e.Records.Moving || e.Bucket != nil && e.Bucket.Moving
}

func (e evidence) counts() string {
	return fmt.Sprintf("of the jobs with objects that were looked at, the records know none of %d; of the result files that records name, %d are missing", e.Unknown, e.Missing)
}

// A DifferError says that records and bucket do not belong together.
type DifferError struct {
	Records, Bucket         *Identity // nil: they say nothing
	RecordsName, BucketName string
	Why                     string
}

// Error names both, where they are, and what to do.
func (e *DifferError) Error() string {
	return fmt.Sprintf("records and objects do not belong together: %s. Records at %s: %s; objects in %s: %s. "+
		"Correct store.url, store.prefix, objects.url or data, or restore what was lost; "+
		"if they do belong together, run `rowmill storage adopt` with the same settings",
		e.Why, e.RecordsName, named(e.Records), e.BucketName, named(e.Bucket))
}

func named(i *Identity) string {
	if i == nil {
		return "no deployment's yet"
	}
	return i.String()
}

// An UnfinishedError says that not all has come yet of what is moved here.
type UnfinishedError struct{ RecordsName, BucketName string }

// Error says how to go on.
func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("not all is there that was to be moved to %s and %s: rowmill migrate still runs, or was interrupted; "+
		"wait for it, or run it again with --force, which empties them first", e.RecordsName, e.BucketName)
}

// A FormatError says that a bucket was written by a later version.
type FormatError struct {
	Found      Identity
	BucketName string
}

// Error says what to start instead.
func (e *FormatError) Error() string {
	return fmt.Sprintf("the objects in %s have format %d, this program reads format %d: start the version of rowmill that wrote them",
		e.BucketName, e.Found.Format, Format)
}
