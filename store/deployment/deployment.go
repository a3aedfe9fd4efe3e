// Package deployment decides whether records and a bucket belong together. A deployment
// has an identity, which is stored as a value in the store and as an object in the
// bucket. When the two differ, a node must not start, and a running node must not
// remove anything, because unknown objects may belong to another deployment.
//
// The package also handles objects of jobs that no record knows. The records may have
// been lost, restored from an older copy, or belong to another deployment. Such objects
// are therefore set aside and reported, and only an operator removes them.
//
// The package does not know how stores and buckets are opened, nor when the checks run.
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

// Format is the version of the layout and encoding of a bucket's objects. Raise it when
// an older program could not read the objects, or would misread them. A program does
// not start on a bucket with a higher version.
const Format = 1

// ValueName is the name of the store's value that holds the identity.
const ValueName = "deployment"

// Identity identifies a deployment, in its records and in its bucket.
type Identity struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Format  int       `json:"format"` // format of the bucket's objects, see the constant Format
	// Moving means that a move is still filling the records or the bucket with this
	// identity. No node starts until the move is complete.
	Moving bool `json:"moving,omitempty"`
}

// NewIdentity returns a new, unique identity.
func NewIdentity(now time.Time) Identity {
	return Identity{ID: "deployment-" + uuid.NewString(), Created: now.UTC().Truncate(time.Second), Format: Format}
}

// String returns the id and the time of creation.
func (i Identity) String() string {
	return fmt.Sprintf("%s of %s", i.ID, i.Created.UTC().Format(time.RFC3339))
}

// Records is the interface of the record store that this package uses.
type Records interface {
	store.NamedValues
	store.Retention
	Get(ctx context.Context, jobID string) (store.Record, error)
}

// A Storage is a store of records and a bucket that should belong together. RecordsName and
// BucketName say in messages where these two are, without passwords.
type Storage struct {
	Records     Records
	RecordsName string
	Bucket      blob.Bucket
	BucketName  string
	Clock       func() time.Time
}

// readIdentities returns both identities, nil for a missing one. It reads the bucket first. In the
// other order, another node could write both identities between the two reads. Then
// records without an identity and a bucket with one would look like two deployments.
func (p Storage) readIdentities(ctx context.Context) (records, bucket *Identity, err error) {
	if bucket, err = p.readBucketIdentity(ctx); err == nil {
		records, _, err = p.readRecordsIdentity(ctx)
	}
	return records, bucket, err
}

// readRecordsIdentity returns the identity in the store and the version of its value.
func (p Storage) readRecordsIdentity(ctx context.Context) (*Identity, int64, error) {
	text, version, err := p.Records.GetValue(ctx, ValueName)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the deployment id in the record store: %w", err)
	}
	found, err := ParseIdentity(text)
	if err != nil {
		return nil, 0, fmt.Errorf("the value %s of the records at %s: %w", ValueName, p.RecordsName, err)
	}
	return found, version, nil
}

// maxIdentity is the largest number of bytes that are read from an object with an
// identity or a note.
const maxIdentity = 64 << 10

func (p Storage) readBucketIdentity(ctx context.Context) (*Identity, error) {
	object, err := p.Bucket.Open(ctx, layout.Deployment)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the identity of the bucket: %w", err)
	}
	defer object.Close()
	text, err := io.ReadAll(io.LimitReader(blob.NewReader(object), maxIdentity))
	if err != nil {
		return nil, fmt.Errorf("read the identity of the bucket: %w", err)
	}
	found, err := ParseIdentity(text)
	if err != nil {
		return nil, fmt.Errorf("the object %s in %s: %w", layout.Deployment, p.BucketName, err)
	}
	return found, nil
}

// ParseIdentity decodes an identity from JSON, the content of the object layout.Deployment.
func ParseIdentity(text []byte) (*Identity, error) {
	var found Identity
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("it is not the identity of a deployment: %w", err)
	}
	if found.ID == "" {
		return nil, errors.New("its id is empty")
	}
	return &found, nil
}

// writeRecordsIdentity writes the identity to the record store if the stored value still has this
// version. Version 0 means that no value exists yet.
func (p Storage) writeRecordsIdentity(ctx context.Context, id Identity, version int64) error {
	text, err := json.Marshal(id)
	if err == nil {
		_, err = p.Records.PutValue(ctx, ValueName, text, version)
	}
	if err != nil {
		return fmt.Errorf("write the deployment id to the record store: %w", err)
	}
	return nil
}

func (p Storage) writeBucketIdentity(ctx context.Context, id Identity) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err == nil {
		err = putObject(ctx, p.Bucket, layout.Deployment, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the identity of the bucket: %w", err)
	}
	return nil
}

// putObject writes text, a JSON document, as an object of the bucket.
func putObject(ctx context.Context, bucket blob.Bucket, key string, text []byte) error {
	_, err := blob.Write(ctx, bucket, key, layout.JSON, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	return err
}
