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

// Bucket is a bucket of an S3 server. Its methods are safe for concurrent use.
type Bucket struct {
	config     Config
	transport  *transport
	client     *minio.Core
	public     *minio.Core // only signs URLs, sends no requests
	blocks     *blockCache
	keys       *credentials.Credentials
	configured *configuredKeys // the provider in keys; nil if the keys come from the machine or the environment
	failing    atomic.Bool     // a warning was logged that calls fail; no call has succeeded since
	limits     unsupportedCalls
	mixed      atomic.Int32 // mixedUnknown, mixedAccepted or mixedRefused: whether an upload can have parts of different lengths
	mixedMu    sync.Mutex   // locked while acceptsMixed finds out the value of mixed

	mu      sync.Mutex
	writers map[*writer]struct{} // open writers: neither committed nor aborted
}

// Open connects to a bucket and checks the permissions to list, write, read and
// delete. It also finds the calls that the server does not support, see Limits.
// Its errors say what to change.
func Open(ctx context.Context, config Config) (*Bucket, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	b := newBucket(config)
	err := b.connect(ctx, b.credentials())
	if err == nil {
		err = b.check(ctx)
	}
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("open bucket %s on %s: %w", config.Bucket, config.Endpoint, err)
	}
	return b, nil
}

// newBucket returns a bucket that is not connected yet. config must be valid.
func newBucket(config Config) *Bucket {
	return &Bucket{
		config:    config,
		transport: newTransport(config, newMetrics(config.Metrics)),
		blocks:    newBlockCache(config.ReadCache, config.ReadAhead),
		writers:   map[*writer]struct{}{},
	}
}

// Close closes idle connections. The caller must close objects and writers first.
func (b *Bucket) Close() error {
	b.transport.base.CloseIdleConnections()
	return nil
}

// Name returns the bucket's name.
func (b *Bucket) Name() string { return b.config.Bucket }

// connect makes the clients for requests and for signed URLs, which these keys sign.
func (b *Bucket) connect(ctx context.Context, keys *credentials.Credentials) error {
	b.keys = keys
	if _, err := b.keys.GetWithContext(&credentials.CredContext{Context: ctx}); err != nil {
		return fmt.Errorf("no credentials: set AccessKey and SecretKey, the AWS_* variables, or grant the machine a role: %w", err)
	}
	var err error
	if b.client, err = b.newClient(b.config.Endpoint); err != nil {
		return err
	}
	if b.config.Region == "" {
		b.config.Region, err = retryCallFor(ctx, b, func(ctx context.Context) (string, error) { return b.client.GetBucketLocation(ctx, b.config.Bucket) })
		if isUnsupported(err) || isNotFound(err) { // some servers do not know their regions
			b.config.Region, err = anyRegion, nil
		}
		if err != nil {
			return b.addRemedy("ask for the bucket's region", err)
		}
		// A client that knows the region never asks the server for the region.
		if b.client, err = b.newClient(b.config.Endpoint); err != nil {
			return err
		}
	}
	b.public, err = b.newClient(b.config.PublicEndpoint)
	return err
}

// credentials returns the configured credentials, or the credentials of
// the environment or the machine.
func (b *Bucket) credentials() *credentials.Credentials {
	switch {
	case b.config.AccessKey != "":
		b.configured = new(configuredKeys)
		b.configured.set(b.config.AccessKey, b.config.SecretKey, b.config.SessionToken)
		return credentials.New(b.configured)
	case os.Getenv("AWS_ACCESS_KEY_ID") != "":
		return credentials.NewEnvAWS()
	}
	client := &http.Client{Transport: b.transport.base, Timeout: b.config.StallTimeout}
	return credentials.New(&credentials.IAM{Client: client})
}

// SetKeys replaces the keys that sign requests and URLs. It does not check
// whether the server accepts them. It returns an error if the bucket was opened
// without keys.
func (b *Bucket) SetKeys(accessKey, secretKey string) error {
	if b.configured == nil || accessKey == "" || secretKey == "" {
		return errors.New("keys can only be replaced by other keys, and only if the bucket was opened with keys")
	}
	b.configured.set(accessKey, secretKey, "")
	b.keys.Expire()
	return nil
}

// configuredKeys are the keys of the configuration, or the keys of the last
// SetKeys.
type configuredKeys struct{ value atomic.Value } // of credentials.Value

var _ credentials.Provider = (*configuredKeys)(nil)

func (g *configuredKeys) set(access, secret, session string) {
	g.value.Store(credentials.Value{AccessKeyID: access, SecretAccessKey: secret, SessionToken: session, SignerType: credentials.SignatureV4})
}

// RetrieveWithCredContext returns the keys.
func (g *configuredKeys) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return g.value.Load().(credentials.Value), nil
}

// Retrieve returns the keys.
func (g *configuredKeys) Retrieve() (credentials.Value, error) { return g.RetrieveWithCredContext(nil) }

// IsExpired returns false: the keys do not expire, and SetKeys itself makes the client
// read the keys again.
func (g *configuredKeys) IsExpired() bool { return false }

func (b *Bucket) newClient(endpoint string) (*minio.Core, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	if b.config.Region == "" {
		b.config.Region = s3utils.GetRegionFromURL(*u)
	}
	return minio.NewCore(u.Host, &minio.Options{
		Creds:     b.keys,
		Secure:    u.Scheme == "https",
		Transport: b.transport,
		Region:    b.config.Region,
		BucketLookup: map[string]minio.BucketLookupType{
			AddressAuto: minio.BucketLookupAuto, AddressPath: minio.BucketLookupPath, AddressHost: minio.BucketLookupDNS,
		}[b.config.Addressing],
		MaxRetries: 1, // one try: Bucket.retryCall does the retries
	})
}

// name returns the object's name in the bucket: the configured prefix and the key.
func (b *Bucket) name(key string) string { return b.config.Prefix + key }

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (blob.ObjectInfo, error) {
	err := blob.CheckCall(ctx, key)
	var found minio.ObjectInfo
	if err == nil {
		found, err = b.stat(ctx, key)
	}
	if err != nil {
		return blob.ObjectInfo{}, blob.Wrap(err, "stat object", key)
	}
	return b.describe(found), nil
}

func (b *Bucket) stat(ctx context.Context, key string) (minio.ObjectInfo, error) {
	return retryCallFor(ctx, b, func(ctx context.Context) (minio.ObjectInfo, error) {
		return b.client.StatObject(ctx, b.config.Bucket, b.name(key), minio.StatObjectOptions{})
	})
}

// describe returns the ObjectInfo of an object. The time is cut to seconds, because the
// answer to HEAD has only seconds, while listings have fractions of a second.
func (b *Bucket) describe(o minio.ObjectInfo) blob.ObjectInfo {
	return blob.ObjectInfo{
		Key:      strings.TrimPrefix(o.Key, b.config.Prefix),
		Size:     o.Size,
		ETag:     quoteETag(o.ETag),
		Modified: o.LastModified.UTC().Truncate(time.Second),
	}
}

// quoteETag returns an ETag in HTTP form. minio-go removes the quotes.
func quoteETag(etag string) string { return `"` + etag + `"` }

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	err := blob.CheckCall(ctx, key)
	if err == nil {
		err = b.retryCall(ctx, func(ctx context.Context) error { return b.removeOnce(ctx, b.name(key)) })
	}
	return blob.Wrap(err, "delete object", key)
}
