package s3

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/retry"
)

// These are the ways to name the bucket in a URL.
const (
	AddressAuto = "auto" // by the endpoint: host for Amazon, path elsewhere
	AddressPath = "path" // https://s3.example.org/bucket/key
	AddressHost = "host" // https://bucket.s3.example.org/key
)

// These are limits of the protocol.
const (
	minPartSize = 5 << 20 // smallest size in bytes of every part except the last
	maxPartSize = 5 << 30
	maxParts    = 10_000
	maxPrefix   = 500 // bytes; with a key of 512 bytes the name stays within the 1,024 bytes that S3 allows
)

// Config says where the bucket is and how to use it.
type Config struct {
	// Endpoint is the server's URL, such as
	// "https://s3.eu-west-1.amazonaws.com" or "http://127.0.0.1:9000".
	// Required.
	Endpoint string

	// PublicEndpoint is the URL under which clients reach the same server.
	// Signed URLs begin with it. Default Endpoint.
	PublicEndpoint string

	// Region is the bucket's region. The default comes from the endpoint's
	// host, or from the server, which needs s3:GetBucketLocation.
	Region string

	// Bucket is the bucket's name. The bucket must exist. Required.
	Bucket string

	// Prefix is put before every key, such as "rowmill/", for a bucket that is
	// shared with other programs. Default none.
	Prefix string

	// AccessKey and SecretKey are the credentials; temporary keys also need
	// SessionToken. The default is AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
	// AWS_SESSION_TOKEN of the environment, or else the machine's role: a web identity
	// token (AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN), or the role of a container
	// or an instance.
	AccessKey, SecretKey, SessionToken string

	// Addressing is AddressAuto (the default), AddressPath or AddressHost.
	Addressing string

	// PartSize is how many bytes one request uploads, 5 MiB to 5 GiB. An object up to
	// this size is uploaded in one request, and a larger object in at most 10,000
	// parts. Default 16 MiB: a part of a job's results fits into one request, and an
	// object can have 156 GiB, or more if the caller announces the size with Expect.
	PartSize int64

	// Concurrency is how many requests of a writer run at a time. Default 2:
	// while one part is sent, another can be filled. A writer holds at most
	// (Concurrency+1) × PartSize bytes, and never more bytes than its object has.
	Concurrency int

	// ReadCache is the largest size in bytes of the object content that is cached in
	// memory, for all open objects together. Default 64 MiB: enough to read ahead in a
	// few dozen objects at a time.
	ReadCache int64

	// ReadAhead is the largest number of bytes that a reader reads ahead. Default 4
	// MiB: with 30 ms to the server this gives about 100 MB/s for one reader.
	ReadAhead int64

	// ConnectTimeout limits the start of a connection, and after that its TLS
	// handshake. Default 5 s.
	ConnectTimeout time.Duration

	// StallTimeout ends a request if no bytes move for this time. Default 20 s: a server
	// that works answers sooner.
	StallTimeout time.Duration

	// CompleteTimeout is the StallTimeout for the request that joins the parts
	// of an upload, because servers may copy them. Default 5 min.
	CompleteTimeout time.Duration

	// AbortTimeout limits how long Abort tries to cancel an upload. Default 5 s:
	// callers abort after an error, when the server may not answer. DeletePrefix or
	// the bucket's lifecycle rule removes the data that stays.
	AbortTimeout time.Duration

	// Retry is the retry policy for a call when the server fails or cannot be
	// reached. Default: retry.Objects.
	Retry retry.Policy

	// Logger gets messages for the operator. Default: discarded.
	Logger *slog.Logger

	// Metrics gets the counters. Default: none.
	Metrics prometheus.Registerer
}

// WithDefaults returns c with defaults for zero values.
func (c Config) WithDefaults() Config {
	c.PublicEndpoint = cmp.Or(c.PublicEndpoint, c.Endpoint)
	if c.Prefix != "" && !strings.HasSuffix(c.Prefix, "/") {
		c.Prefix += "/"
	}
	c.Addressing = cmp.Or(c.Addressing, AddressAuto)
	c.PartSize = cmp.Or(c.PartSize, 16<<20)
	c.Concurrency = cmp.Or(c.Concurrency, 2)
	c.ReadCache = cmp.Or(c.ReadCache, 64<<20)
	c.ReadAhead = cmp.Or(c.ReadAhead, 4<<20)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 20*time.Second)
	c.CompleteTimeout = cmp.Or(c.CompleteTimeout, 5*time.Minute)
	c.AbortTimeout = cmp.Or(c.AbortTimeout, 5*time.Second)
	c.Retry = cmp.Or(c.Retry, retry.Objects)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that names the first invalid field. c must have its
// defaults.
func (c Config) Validate() error {
	if err := cmp.Or(checkEndpoint("Endpoint", c.Endpoint), checkEndpoint("PublicEndpoint", c.PublicEndpoint)); err != nil {
		return err
	}
	if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
		return fmt.Errorf("s3: Bucket is %q: %w", c.Bucket, err)
	}
	if c.Prefix != "" {
		if err := blob.CheckPrefix(c.Prefix); err != nil {
			return fmt.Errorf("s3: Prefix is %.80q: %w", c.Prefix, err)
		}
		if len(c.Prefix) > maxPrefix {
			return fmt.Errorf("s3: Prefix has %d bytes: at most %d are allowed", len(c.Prefix), maxPrefix)
		}
	}
	switch {
	case (c.AccessKey == "") != (c.SecretKey == ""):
		return errors.New("s3: only one of AccessKey and SecretKey is set: set both, or neither to use the keys of the environment")
	case c.SessionToken != "" && c.AccessKey == "":
		return errors.New("s3: SessionToken is set without AccessKey and SecretKey: set them too")
	case c.Addressing != AddressAuto && c.Addressing != AddressPath && c.Addressing != AddressHost:
		return fmt.Errorf("s3: Addressing is %q: it must be %q, %q or %q", c.Addressing, AddressAuto, AddressPath, AddressHost)
	case c.PartSize < minPartSize || c.PartSize > maxPartSize:
		return fmt.Errorf("s3: PartSize is %d: S3 accepts parts of %d to %d bytes", c.PartSize, minPartSize, int64(maxPartSize))
	case c.Concurrency < 1:
		return fmt.Errorf("s3: Concurrency is %d: it must be at least 1", c.Concurrency)
	case c.ReadAhead < blockSize || c.ReadCache < 2*blockSize:
		return fmt.Errorf("s3: ReadAhead is %d and ReadCache %d: they must be at least %d and %d bytes", c.ReadAhead, c.ReadCache, blockSize, 2*blockSize)
	case min(c.ConnectTimeout, c.StallTimeout, c.CompleteTimeout, c.AbortTimeout) < 0:
		return errors.New("s3: ConnectTimeout, StallTimeout, CompleteTimeout and AbortTimeout must not be negative")
	}
	return nil
}

func checkEndpoint(field, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("s3: %s is %q: it must be like https://s3.example.org:9000, without user, path, query or fragment", field, endpoint)
	}
	return nil
}
