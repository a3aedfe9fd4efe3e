// Package move copies a whole deployment from one place to another: from the directory of
// a single node to Redis and S3, back, or between two places of the same kind. The
// package defines the order of the steps and the checks. It does not depend on a concrete
// store or bucket.
//
//	Begin     checks that the target is empty and marks it, so that no node starts on it
//	Objects   copies each object, reads it back and compares
//	Store     stores each record in the format of the target
//	End       compares the target with the source and replaces the mark
//
// Objects come first, so that a record never names a missing object. A move that is
// interrupted leaves a marked target and does not change the source.
package move

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/deployment"
)

const (
	// copiesAtOnce is the number of objects that are copied at the same time. A copy of a
	// small object mostly waits for the server, so several copies at a time are faster; a
	// large object fills the network alone.
	copiesAtOnce = 16
	// folderPage is the number of folders in one listing.
	folderPage = 1000
	// batchRecords and batchBytes limit one transaction, because other clients of a
	// Redis server wait until it is complete.
	batchRecords, batchBytes = 500, 4 << 20
)

// Records is the interface of a record store that can be copied.
type Records interface {
	deployment.Records
	store.MovableStore
}

// A Location is a source or a target of a move: a record store and a bucket. The field
// Records of deployment.Storage is the same store as Location.Records.
type Location struct {
	deployment.Storage
	Records Records
}

// A ContentSummary counts the records and objects of a place.
type ContentSummary struct {
	Kinds   map[string]int64 // number of records by kind
	Objects int64
	Bytes   int64 // total size of the objects

	digest [sha256.Size]byte // sum of the hashes of the records, independent of their order
}

// Total returns the number of records.
func (s ContentSummary) Total() (n int64) {
	for _, of := range s.Kinds {
		n += of
	}
	return n
}

// addRecord counts a record and adds its hash to the digest. It skips idempotency keys, which
// may expire at any time, and the identity of the deployment.
func (s *ContentSummary) addRecord(e store.ExportEntry) error {
	if e.Idempotency != nil || isIdentity(e) {
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	if s.Kinds == nil {
		s.Kinds = map[string]int64{}
	}
	s.Kinds[e.Kind()]++
	for i, b := range sha256.Sum256(text) { // the sum of the hashes does not depend on the order
		s.digest[i] += b
	}
	return nil
}

// countsSameRecords reports whether both summaries count the same records.
func (s ContentSummary) countsSameRecords(other ContentSummary) bool {
	return s.digest == other.digest && s.Total() == other.Total()
}

func isIdentity(e store.ExportEntry) bool {
	return e.Value != nil && e.Value.Name == deployment.ValueName
}

// SummarizeRecords counts the records of a store and computes their digest.
func SummarizeRecords(ctx context.Context, from Records) (s ContentSummary, err error) {
	err = from.Export(ctx, s.addRecord)
	return s, err
}

// A Move copies a deployment into one place. Only its method CopyObject may be called
// concurrently.
type Move struct {
	to       Location
	mark     deployment.Identity
	progress func(phase string, done int64)
	moved    ContentSummary
	objects  atomic.Int64
	bytes    atomic.Int64
}

// Begin begins a move to a place, which must be empty or hold an unfinished move. If
// restart is true, Begin removes the data of the unfinished move; otherwise it returns a
// *deployment.UnfinishedMoveError. progress receives the number of objects or records that
// were moved so far. Several goroutines may call progress.
func Begin(ctx context.Context, to Location, restart bool, progress func(phase string, done int64)) (*Move, error) {
	records, bucket, err := to.FindUnfinishedMove(ctx, restart)
	if err != nil {
		return nil, err
	}
	if !records {
		if err := checkNoRecords(ctx, to); err != nil {
			return nil, err
		}
	}
	if !bucket {
		if err := checkNoObjects(ctx, to); err != nil {
			return nil, err
		}
	}
	m := &Move{to: to, progress: progress}
	if m.mark, err = to.BeginMove(ctx); err != nil {
		return nil, err
	}
	if records {
		if err := to.Records.Clear(ctx); err != nil {
			return nil, err
		}
		if err := to.MarkMove(ctx, m.mark); err != nil {
			return nil, err
		}
	}
	if bucket {
		return m, eachFolder(ctx, to.Bucket, "", func(name string) error { return to.Bucket.DeletePrefix(ctx, name+"/") })
	}
	return m, nil
}

// errFound stops an Export as soon as it has found a record.
var errFound = errors.New("the store has a record")

func checkNoRecords(ctx context.Context, to Location) error {
	err := to.Records.Export(ctx, func(store.ExportEntry) error { return errFound })
	if errors.Is(err, errFound) {
		return fmt.Errorf("%s is not empty: name an empty place", to.RecordsName)
	}
	return err
}

func checkNoObjects(ctx context.Context, to Location) error {
	return eachFolder(ctx, to.Bucket, "", func(name string) error {
		objects, err := to.Bucket.List(ctx, name+"/")
		if err == nil && len(objects) > 0 {
			err = fmt.Errorf("%s is not empty, it contains %s: name an empty place", to.BucketName, objects[0].Key)
		}
		return err
	})
}

// eachFolder calls visit with the name of each direct subfolder of the folder in. An
// empty in means the top of the bucket.
func eachFolder(ctx context.Context, bucket blob.Bucket, parent string, visit func(name string) error) error {
	for after := ""; ; {
		names, err := bucket.Folders(ctx, parent, after, folderPage)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
			after = name
		}
		if len(names) < folderPage {
			return nil
		}
	}
}

// eachObject calls visit for each object of a bucket that a move copies. At any time, it
// has only the object list of one job in memory.
func eachObject(ctx context.Context, bucket blob.Bucket, visit func(blob.ObjectInfo) error) error {
	list := func(prefix string) error {
		objects, err := bucket.List(ctx, prefix)
		for _, o := range objects {
			if err == nil {
				err = visit(o)
			}
		}
		return err
	}
	return eachFolder(ctx, bucket, "", func(top string) error {
		switch top += "/"; top {
		case layout.Probes:
			return nil
		case layout.Jobs:
			return eachFolder(ctx, bucket, top, func(job string) error { return list(top + job + "/") })
		default:
			return list(top)
		}
	})
}

// CopyObjects copies all objects of a bucket. No process may write to the bucket meanwhile.
func (m *Move) CopyObjects(ctx context.Context, from blob.Bucket) error {
	copies, ctx := errgroup.WithContext(ctx)
	copies.SetLimit(copiesAtOnce)
	err := eachObject(ctx, from, func(o blob.ObjectInfo) error {
		copies.Go(func() error {
			object, err := from.Open(ctx, o.Key)
			if err != nil {
				return err
			}
			defer object.Close()
			return m.CopyObject(ctx, o.Key, blob.NewReader(object))
		})
		return ctx.Err()
	})
	return cmp.Or(copies.Wait(), err)
}

// CountObjects counts the objects of a bucket that would be moved.
func CountObjects(ctx context.Context, from blob.Bucket) (objects int64, err error) {
	err = eachObject(ctx, from, func(blob.ObjectInfo) error { objects++; return nil })
	return objects, err
}

// CopyObject copies an object to the target, reads it back and compares the content. It
// ignores objects that a move does not copy: the identity and the probes.
func (m *Move) CopyObject(ctx context.Context, key string, content io.Reader) error {
	if key == layout.Deployment || strings.HasPrefix(key, layout.Probes) {
		return nil
	}
	var n int64
	sum := sha256.New()
	_, err := blob.Write(ctx, m.to.Bucket, key, layout.MediaType(key), func(w io.Writer) (err error) {
		n, err = io.Copy(io.MultiWriter(w, sum), content)
		return err
	})
	if err != nil {
		return fmt.Errorf("copy object %s: %w", key, err)
	}
	if err := m.verifyObject(ctx, key, n, sum); err != nil {
		return err
	}
	m.bytes.Add(n)
	m.progress("objects", m.objects.Add(1))
	return nil
}

// verifyObject reads a copied object back from the target and compares its size and its hash.
func (m *Move) verifyObject(ctx context.Context, key string, size int64, want hash.Hash) error {
	stored, err := m.to.Bucket.Open(ctx, key)
	if err != nil {
		return fmt.Errorf("read object %s back: %w", key, err)
	}
	defer stored.Close()
	got := sha256.New()
	n, err := io.Copy(got, blob.NewReader(stored))
	if err != nil {
		return fmt.Errorf("read object %s back: %w", key, err)
	}
	if n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return fmt.Errorf("object %s in %s differs from its source: it has %d bytes, the source %d; check the object store and start again with --force", key, m.to.BucketName, n, size)
	}
	return nil
}

// CopyRecords copies all records from a store to the target, in batches.
func (m *Move) CopyRecords(ctx context.Context, from Records) error {
	var batch []store.ExportEntry
	size := 0
	flush := func() error {
		err := m.to.Records.Import(ctx, batch)
		batch, size = batch[:0], 0
		m.progress("records", m.moved.Total())
		return err
	}
	err := from.Export(ctx, func(e store.ExportEntry) error {
		if isIdentity(e) {
			return nil
		}
		if err := m.moved.addRecord(e); err != nil {
			return err
		}
		batch = append(batch, e)
		if size += estimateBytes(e); len(batch) < batchRecords && size < batchBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(batch) > 0 {
		err = flush()
	}
	return err
}

// estimateBytes estimates how many bytes the store writes for an entry.
func estimateBytes(e store.ExportEntry) int {
	const each = 500
	switch {
	case e.Job != nil:
		n := len(e.Job.Record.Spec.System) + each*(1+len(e.Job.Parts)) + len(e.Job.Merged)*each/5
		for _, row := range e.Job.Record.Spec.Inline {
			n += len(row)
		}
		for _, p := range e.Job.Parts {
			n += len(p.Accepted)
		}
		return n
	case e.Value != nil:
		return each + len(e.Value.Doc)
	case e.Delivery != nil:
		return each + len(e.Delivery.Delivery.Payload)
	}
	return each
}

// End checks that the target has exactly the moved records. If before is not nil, it also
// checks that the records at the source are still as in before. Then it gives the target
// a new identity, which allows nodes to start.
func (m *Move) End(ctx context.Context, sourceRecords Records, before *ContentSummary, source deployment.Identity) (ContentSummary, deployment.Identity, error) {
	m.moved.Objects, m.moved.Bytes = m.objects.Load(), m.bytes.Load()
	m.progress("check", 0)
	there, err := SummarizeRecords(ctx, m.to.Records)
	if err == nil && !there.countsSameRecords(m.moved) {
		err = fmt.Errorf("the records at %s differ from the moved records: stored are %s, moved were %s; start again with --force", m.to.RecordsName, there, m.moved)
	}
	if err != nil {
		return m.moved, deployment.Identity{}, err
	}
	if before != nil {
		after, err := SummarizeRecords(ctx, sourceRecords)
		if err == nil && !(after.countsSameRecords(*before) && after.countsSameRecords(m.moved)) {
			err = errors.New("the records changed during the move, so a node is running; stop all nodes and start again with --force")
		}
		if err != nil {
			return m.moved, deployment.Identity{}, err
		}
	}
	settled, err := m.to.EndMove(ctx, m.mark, source)
	return m.moved, settled, err
}

// String lists the number of records of each kind.
func (s ContentSummary) String() string {
	var kinds []string
	for kind, n := range s.Kinds {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
	}
	if len(kinds) == 0 {
		return "none"
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}
