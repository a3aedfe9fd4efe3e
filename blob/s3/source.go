package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/retry"
)

// SourceConfig says where the objects of a Source are, and with which credentials they are read.
type SourceConfig struct {
	Endpoint, Region, Bucket, Prefix string // as in Config
	Credentials                      Credentials
	File, Profile                    string // credentials file and its profile, for FileCredentials; an empty profile is the profile "default"
	Logger                           *slog.Logger
}

// Credentials says where the credentials of a Source are.
type Credentials string

// The values of Credentials.
const (
	EnvironmentCredentials Credentials = "environment" // the AWS_ variables; without them, requests are not signed, as for a public bucket
	FileCredentials        Credentials = "file"        // a file in the format of the AWS programs
	RoleCredentials        Credentials = "role"        // the web identity of a pod, or the role of a container or of the machine
)

// sourcePatience is how long a failed call for a Source is repeated. A job that reads a source for
// hours must survive the restart of the server.
var sourcePatience = retry.Policy{First: 100 * time.Millisecond, Most: 10 * time.Second, For: 2 * time.Minute}

// errCredentials means that there are no credentials. It has no details for clients.
var errCredentials = errors.New("the credentials of the source cannot be read")

// A Source reads objects that other programs write, with any names. It connects at the first call. Its
// methods are safe for concurrent use.
type Source struct {
	config SourceConfig

	mu     sync.Mutex
	bucket *Bucket // nil before the first successful connection
}

// NewSource returns a source that is not connected yet. The error says which field of the
// configuration is wrong.
func NewSource(config SourceConfig) (*Source, error) {
	s := &Source{config: config}
	return s, s.config.bucketConfig().Validate()
}

func (c SourceConfig) bucketConfig() Config {
	return Config{Endpoint: c.Endpoint, Region: c.Region, Bucket: c.Bucket, Prefix: c.Prefix, Retry: sourcePatience, Logger: c.Logger}.WithDefaults()
}

// Close closes idle connections. The caller must close objects first.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket == nil {
		return nil
	}
	return s.bucket.Close()
}

// connect returns the bucket, and connects to it at the first call.
func (s *Source) connect(ctx context.Context) (*Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket != nil {
		return s.bucket, nil
	}
	b := newBucket(s.config.bucketConfig())
	keys := s.config.credentials(b)
	if _, err := keys.GetWithContext(&credentials.CredContext{Context: ctx}); err != nil {
		b.config.Logger.Warn("the credentials of a source cannot be read", "bucket", s.config.Bucket, "credentials", s.config.Credentials, "err", err)
		return nil, errors.Join(errCredentials, b.Close()) // err can have the path of a file, which clients need not know
	}
	if err := b.connect(ctx, keys); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	s.bucket = b
	return b, nil
}

// credentials returns the credentials that the configuration names.
func (c SourceConfig) credentials(b *Bucket) *credentials.Credentials {
	switch c.Credentials {
	case FileCredentials:
		return credentials.NewFileAWSCredentials(c.File, c.Profile)
	case RoleCredentials:
		return credentials.New(&credentials.IAM{Client: &http.Client{Transport: b.transport.base, Timeout: b.config.StallTimeout}})
	case EnvironmentCredentials:
	}
	return credentials.NewEnvAWS()
}

// List returns the objects with keys that begin with prefix, if match returns true. prefix may end
// within a name. After each object, List calls more with all objects so far, which more must not keep. If
// more returns false, List ends with these objects. After a failed call, List begins again.
func (s *Source) List(ctx context.Context, prefix string, match func(key string) bool, more func(found []blob.ObjectInfo) bool) ([]blob.ObjectInfo, error) {
	b, err := s.connect(ctx)
	if err != nil {
		return nil, s.report(ctx, "connect", err)
	}
	found, err := retryCallFor(ctx, b, func(ctx context.Context) (found []blob.ObjectInfo, err error) {
		ctx, cancel := context.WithCancel(ctx) // ends the listing early
		defer cancel()
		for o := range b.client.ListObjectsIter(ctx, b.config.Bucket, minio.ListObjectsOptions{Prefix: b.name(prefix), Recursive: true}) {
			if o.Err != nil {
				return nil, o.Err
			}
			info := b.describe(o)
			if !fs.ValidPath(info.Key) || !match(info.Key) { // some tools write objects for folders, with a slash at the end
				continue
			}
			if found = append(found, info); !more(found) {
				break
			}
		}
		return found, ctx.Err() // when ctx ends, the iterator stops without an error
	})
	if err != nil {
		return nil, s.report(ctx, "list objects", err)
	}
	return found, nil
}

// Open opens the version of an object that List returned, without a request. Reads fail with
// blob.ErrLost if the object has another ETag now. When ctx ends, later reads fail.
func (s *Source) Open(ctx context.Context, info blob.ObjectInfo) (blob.Object, error) {
	b, err := s.connect(ctx)
	if err != nil {
		return nil, s.report(ctx, "connect", err)
	}
	o := &object{bucket: b, key: info.Key, size: info.Size, etag: strings.Trim(info.ETag, `"`), modified: info.Modified}
	o.ctx, o.cancel = context.WithCancel(ctx)
	b.blocks.addObject(o, nil)
	return &sourceObject{o, s}, nil
}

// sourceObject is an open object of a Source.
type sourceObject struct {
	*object
	source *Source
}

// ReadAt reads from the version that was listed.
func (o *sourceObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.object.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.source.report(o.ctx, "read object", err)
	}
	return n, err
}

// report logs an error, and returns an error for clients: they need not know the server and the
// bucket. It returns the errors unchanged that say that an object or the caller has gone.
func (s *Source) report(ctx context.Context, action string, err error) error {
	switch {
	case ctx.Err() != nil, errors.Is(err, blob.ErrLost), isNotFound(err), errors.Is(err, errCredentials): // connect has logged errCredentials
		return err
	}
	s.config.bucketConfig().Logger.Warn("a call of a source failed", "bucket", s.config.Bucket, "action", action, "err", err)
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return fmt.Errorf("%s: S3 status %d, code %s", action, answer.StatusCode, answer.Code)
	}
	return fmt.Errorf("%s: the S3 service did not answer as expected; the log of the node has the cause", action)
}

// Write writes an object. Readers see it when it is complete. The error is rowmill.ErrUnavailable if
// the server did not answer.
func (s *Source) Write(ctx context.Context, key string, write func(w io.Writer) error) error {
	b, err := s.connect(ctx)
	if err == nil {
		var own error // of write
		_, err = blob.Write(ctx, b, key, "application/octet-stream", func(w io.Writer) error {
			to := &failingWriter{Writer: w}
			if own = write(to); to.err != nil {
				own = nil
				return to.err
			}
			return own
		})
		if own != nil {
			return own
		}
	}
	if err == nil {
		return nil
	}
	reported := s.report(ctx, "write object", err)
	if errors.Is(err, rowmill.ErrUnavailable) {
		reported = fmt.Errorf("%w (%w)", reported, rowmill.ErrUnavailable)
	}
	return reported
}

// failingWriter keeps the first error of a writer.
type failingWriter struct {
	io.Writer
	err error
}

func (f *failingWriter) Write(p []byte) (n int, err error) {
	if n, err = f.Writer.Write(p); err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}
