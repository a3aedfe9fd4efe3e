// Package deployment owns which records and which bucket belong together. A
// deployment has an identity, kept as a value in the store and as an object in
// the bucket. Where the two differ a node must not start, and one that runs
// must remove nothing: what it takes for nobody's may be somebody else's.
//
// It also owns what becomes of objects whose job no record knows. The records
// may have been lost, restored from an older copy or be those of another
// deployment, so such objects are set aside, reported, and removed by nobody
// but an operator.
//
// It does not know how stores and buckets are opened, nor when anyone looks.
package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/store"
)

// Format is the version of how a bucket's objects are laid out and written. It
// grows when a program that knows a lower one could not read them, or would take
// them for something else. A program does not start on a bucket with a higher one.
const Format = 1

// Value names the value of the store that holds its identity.
const Value = "deployment"

// Identity is whose records or objects these are.
type Identity struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Format  int       `json:"format"` // of the bucket
	// Moving says that records and objects are still to come from another place: no
	// node starts until all of them are there.
	Moving bool `json:"moving,omitempty"`
}

// New returns an identity that nobody has.
func New(now time.Time) Identity {
	return Identity{ID: "deployment-" + uuid.NewString(), Created: now.UTC().Truncate(time.Second), Format: Format}
}

// String names it and its age.
func (i Identity) String() string {
	return fmt.Sprintf("%s of %s", i.ID, i.Created.UTC().Format(time.RFC3339))
}

// Records are what is asked of the store.
type Records interface {
	store.Values
	store.Retention
	Get(ctx context.Context, jobID string) (store.Record, error)
}

// A Pair is records and a bucket that are to belong together. The names are
// what an operator calls them, without passwords.
type Pair struct {
	Records     Records
	RecordsName string
	Bucket      blob.Bucket
	BucketName  string
	Clock       func() time.Time
}

// read returns both identities, nil for one that is not there. The bucket, which is
// marked last, is read first: where another node marks both meanwhile, records
// without a mark beside a marked bucket would be those of another deployment.
func (p Pair) read(ctx context.Context) (records, bucket *Identity, err error) {
	if bucket, err = p.ofBucket(ctx); err == nil {
		records, _, err = p.ofRecords(ctx)
	}
	return records, bucket, err
}

// ofRecords is the identity in the store and the version of its value.
func (p Pair) ofRecords(ctx context.Context) (*Identity, int64, error) {
	text, version, err := p.Records.GetValue(ctx, Value)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read whose records these are: %w", err)
	}
	found, err := Parse(text)
	if err != nil {
		return nil, 0, fmt.Errorf("the value %s of the records at %s: %w", Value, p.RecordsName, err)
	}
	return found, version, nil
}

// maxIdentity bounds what is read of an object that should hold an identity.
const maxIdentity = 64 << 10

func (p Pair) ofBucket(ctx context.Context) (*Identity, error) {
	object, err := p.Bucket.Open(ctx, layout.Deployment)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read whose bucket this is: %w", err)
	}
	defer object.Close()
	text, err := io.ReadAll(io.LimitReader(blob.NewReader(object), maxIdentity))
	if err != nil {
		return nil, fmt.Errorf("read whose bucket this is: %w", err)
	}
	found, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the object %s in %s: %w", layout.Deployment, p.BucketName, err)
	}
	return found, nil
}

// Parse reads an identity as the object layout.Deployment holds it.
func Parse(text []byte) (*Identity, error) {
	var found Identity
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("it is no identity of a deployment: %w", err)
	}
	if found.ID == "" {
		return nil, errors.New("it names no deployment")
	}
	return &found, nil
}

// markRecords writes an identity in place of the one of a version.
func (p Pair) markRecords(ctx context.Context, id Identity, version int64) error {
	text, err := json.Marshal(id)
	if err == nil {
		_, err = p.Records.PutValue(ctx, Value, text, version)
	}
	if err != nil {
		return fmt.Errorf("write whose records these are: %w", err)
	}
	return nil
}

func (p Pair) markBucket(ctx context.Context, id Identity) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err == nil {
		err = put(ctx, p.Bucket, layout.Deployment, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write whose bucket this is: %w", err)
	}
	return nil
}

// put writes a small JSON object.
func put(ctx context.Context, bucket blob.Bucket, key string, text []byte) error {
	writer, err := bucket.Create(ctx, key, layout.JSON)
	if err != nil {
		return err
	}
	defer writer.Abort()
	if _, err := writer.Write(text); err != nil {
		return err
	}
	_, err = writer.Commit()
	return err
}
