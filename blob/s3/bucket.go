package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/rowmill/rowmill/blob"
)

var _ blob.Bucket = (*Bucket)(nil)

// anyRegion is the region in signatures for servers without regions.
const anyRegion = "us-east-1"

// Bucket is a bucket of an S3 server. All methods are safe for concurrent use.
type Bucket struct {
	config    Config
	transport *transport
	client    *minio.Core
	public    *minio.Core // signs URLs, sends nothing
	blocks    *blocks
	keys      *credentials.Credentials
	given     *givenKeys  // behind keys; nil where the machine or the environment has them
	ailing    atomic.Bool // calls fail, and the log says so
	limits    limits
	mixing    atomic.Int32 // whether an upload may have parts of several lengths
	mixingMu  sync.Mutex   // held while that is tried

	mu      sync.Mutex
	writers map[*writer]struct{} // neither committed nor aborted
}

// Open connects to a bucket, checks that it may list, write, read and delete there, and
// finds the calls that the server does not do, see Limits. Its errors say what
// to change.
func Open(ctx context.Context, config Config) (*Bucket, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	b := &Bucket{
		config:    config,
		transport: newTransport(config, newMetrics(config.Metrics)),
		blocks:    newBlocks(config.ReadCache, config.ReadAhead),
		writers:   map[*writer]struct{}{},
	}
	err := b.connect(ctx)
	if err == nil {
		err = b.check(ctx)
	}
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("open bucket %s on %s: %w", config.Bucket, config.Endpoint, err)
	}
	return b, nil
}

// Close gives up the connections. Objects and writers must have ended.
func (b *Bucket) Close() error {
	b.transport.base.CloseIdleConnections()
	return nil
}

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.config.Bucket }

// connect makes the clients.
func (b *Bucket) connect(ctx context.Context) error {
	keys := b.credentials()
	b.keys = keys
	if _, err := keys.GetWithContext(&credentials.CredContext{Context: ctx}); err != nil {
		return fmt.Errorf("no credentials: set AccessKey and SecretKey, the AWS_* variables, or grant the machine a role: %w", err)
	}
	var err error
	if b.client, err = b.newClient(b.config.Endpoint, keys); err != nil {
		return err
	}
	if b.config.Region == "" {
		err := b.try(ctx, func(ctx context.Context) (err error) {
			b.config.Region, err = b.client.GetBucketLocation(ctx, b.config.Bucket)
			return err
		})
		if refuses(err) || isNotFound(err) { // some servers do not know their regions
			b.config.Region, err = anyRegion, nil
		}
		if err != nil {
			return b.remedy("ask for the bucket's region", err)
		}
		// Made again with its region, a client never asks for it.
		if b.client, err = b.newClient(b.config.Endpoint, keys); err != nil {
			return err
		}
	}
	b.public, err = b.newClient(b.config.PublicEndpoint, keys)
	return err
}

// credentials are the given ones, the environment's, or the machine's.
func (b *Bucket) credentials() *credentials.Credentials {
	switch {
	case b.config.AccessKey != "":
		b.given = &givenKeys{value: credentials.Value{
			AccessKeyID: b.config.AccessKey, SecretAccessKey: b.config.SecretKey, SessionToken: b.config.SessionToken, SignerType: credentials.SignatureV4,
		}}
		return credentials.New(b.given)
	case os.Getenv("AWS_ACCESS_KEY_ID") != "":
		return credentials.NewEnvAWS()
	}
	client := &http.Client{Transport: b.transport.base, Timeout: b.config.StallTimeout}
	return credentials.New(&credentials.IAM{Client: client})
}

// SetKeys has requests and URLs signed with other keys from now on. Whether the server
// takes them is not asked. A bucket that was opened without keys takes none.
func (b *Bucket) SetKeys(accessKey, secretKey string) error {
	if b.given == nil || accessKey == "" || secretKey == "" {
		return errors.New("keys can be replaced by others alone: whether there are any is settled when the bucket is opened")
	}
	b.given.set(credentials.Value{AccessKeyID: accessKey, SecretAccessKey: secretKey, SignerType: credentials.SignatureV4})
	b.keys.Expire()
	return nil
}

// givenKeys are the keys of the configuration, or those that took their place.
type givenKeys struct {
	mu    sync.Mutex
	value credentials.Value
}

var _ credentials.Provider = (*givenKeys)(nil)

func (g *givenKeys) set(value credentials.Value) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.value = value
}

// RetrieveWithCredContext returns them.
func (g *givenKeys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.value, nil
}

// Retrieve is RetrieveWithCredContext.
func (g *givenKeys) Retrieve() (credentials.Value, error) { return g.RetrieveWithCredContext(nil) }

// IsExpired is false: SetKeys says when they are.
func (g *givenKeys) IsExpired() bool { return false }

func (b *Bucket) newClient(endpoint string, keys *credentials.Credentials) (*minio.Core, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	if b.config.Region == "" {
		b.config.Region = s3utils.GetRegionFromURL(*u)
	}
	return minio.NewCore(u.Host, &minio.Options{
		Creds:     keys,
		Secure:    u.Scheme == "https",
		Transport: b.transport,
		Region:    b.config.Region,
		BucketLookup: map[string]minio.BucketLookupType{
			AddressAuto: minio.BucketLookupAuto, AddressPath: minio.BucketLookupPath, AddressHost: minio.BucketLookupDNS,
		}[b.config.Addressing],
		MaxRetries: 1, // try repeats
	})
}

// name is the object's name in the bucket.
func (b *Bucket) name(key string) string { return b.config.Prefix + key }

// begin checks what every call on a key starts with.
func begin(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return blob.CheckKey(key)
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := begin(ctx, key); err != nil {
		return blob.Info{}, fmt.Errorf("stat object: %w", err)
	}
	found, err := b.stat(ctx, key)
	if err != nil {
		return blob.Info{}, fmt.Errorf("stat object %s: %w", key, err)
	}
	return b.describe(found), nil
}

func (b *Bucket) stat(ctx context.Context, key string) (found minio.ObjectInfo, err error) {
	err = b.try(ctx, func(ctx context.Context) (err error) {
		found, err = b.client.StatObject(ctx, b.config.Bucket, b.name(key), minio.StatObjectOptions{})
		return err
	})
	return found, err
}

// describe is what S3 says of an object. Its times are cut to seconds, since
// HEAD has no more where listings have.
func (b *Bucket) describe(o minio.ObjectInfo) blob.Info {
	return blob.Info{
		Key:      strings.TrimPrefix(o.Key, b.config.Prefix),
		Size:     o.Size,
		ETag:     quoted(o.ETag),
		Modified: o.LastModified.UTC().Truncate(time.Second),
	}
}

// quoted is an ETag as HTTP writes it; minio-go takes the quotes away.
func quoted(etag string) string { return `"` + etag + `"` }

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	err := begin(ctx, key)
	if err == nil {
		err = b.try(ctx, func(ctx context.Context) error {
			return b.removeOnce(ctx, b.name(key))
		})
	}
	if err != nil {
		return fmt.Errorf("delete object %s: %w", key, err)
	}
	return nil
}
