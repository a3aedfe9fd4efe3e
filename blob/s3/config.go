package s3

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/retry"
)

// How the bucket is named in a URL.
const (
	AddressAuto = "auto" // by the endpoint: host for Amazon, path elsewhere
	AddressPath = "path" // https://s3.example.org/bucket/key
	AddressHost = "host" // https://bucket.s3.example.org/key
)

// Limits of the protocol.
const (
	minPartSize = 5 << 20 // bytes of every part but the last
	maxPartSize = 5 << 30
	maxParts    = 10_000
	maxPrefix   = 500 // bytes; with a key of 512 this stays within the 1,024 of S3
)

// Config says where the bucket is and how it is spoken to.
type Config struct {
	// Endpoint is the server's URL, such as "https://s3.eu-west-1.amazonaws.com"
	// or "http://127.0.0.1:9000". Required.
	Endpoint string

	// PublicEndpoint is the URL under which clients reach the same server: what
	// signed URLs start with and are signed for. Default Endpoint.
	PublicEndpoint string

	// Region is the bucket's region. By default the endpoint's host says it,
	// or the server is asked, which needs s3:GetBucketLocation.
	Region string

	// Bucket is the bucket's name; it must exist. Required.
	Bucket string

	// Prefix is put before every key, for a bucket that is shared with others,
	// such as "rowmill/". Default none.
	Prefix string

	// AccessKey, SecretKey and, for temporary keys, SessionToken are the
	// credentials. By default AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
	// AWS_SESSION_TOKEN of the environment, or else what the machine is granted:
	// a web identity token (AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN), a
	// container's or an instance's role.
	AccessKey, SecretKey, SessionToken string

	// Addressing is AddressAuto (the default), AddressPath or AddressHost.
	Addressing string

	// PartSize is how many bytes one request uploads, 5 MiB to 5 GiB. An object
	// of up to that size is one request, a larger one at most 10,000. Default
	// 16 MiB: a part of results fits, and an object may have 156 GiB, or more where
	// its writer says so before, see Expect.
	PartSize int64

	// Concurrency is how many requests one writer has in flight. Default 2:
	// enough to fill a part while another is on its way. A writer holds at most
	// (Concurrency+1) × PartSize bytes, and no more than its object has.
	Concurrency int

	// ReadCache bounds what all open objects together hold of their contents,
	// in bytes. Default 64 MiB: a few dozen objects are read ahead side by side.
	ReadCache int64

	// ReadAhead is how far one reader reads ahead at most, in bytes. Default
	// 4 MiB: at 30 ms to the server that is about 100 MB/s for one reader.
	ReadAhead int64

	// ConnectTimeout bounds a connection's start, TLS included. Default 5 s.
	ConnectTimeout time.Duration

	// StallTimeout ends a request on which no byte has moved for so long.
	// Default 20 s: servers that answer at all do so in less.
	StallTimeout time.Duration

	// CompleteTimeout is StallTimeout for the request that makes the parts of
	// an upload one object, since servers may copy them. Default 5 min.
	CompleteTimeout time.Duration

	// AbortTimeout bounds how long Abort tries to take an upload back. Default
	// 5 s: callers abort when something is wrong already, and what stays is
	// removed by DeletePrefix or the bucket's lifecycle rule.
	AbortTimeout time.Duration

	// Retry is how one call goes on when the server fails or cannot be reached.
	// Default: retry.Objects.
	Retry retry.Policy

	// Logger gets what an operator should know once. Default: discarded.
	Logger *slog.Logger

	// Metrics gets the counters. Default: nobody.
	Metrics prometheus.Registerer
}

// WithDefaults returns c with the defaults in place of zero values.
func (c Config) WithDefaults() Config {
	if c.PublicEndpoint == "" {
		c.PublicEndpoint = c.Endpoint
	}
	if c.Prefix != "" && !strings.HasSuffix(c.Prefix, "/") {
		c.Prefix += "/"
	}
	orDefault(&c.Addressing, AddressAuto)
	orDefault(&c.PartSize, 16<<20)
	orDefault(&c.Concurrency, 2)
	orDefault(&c.ReadCache, 64<<20)
	orDefault(&c.ReadAhead, 4<<20)
	orDefault(&c.ConnectTimeout, 5*time.Second)
	orDefault(&c.StallTimeout, 20*time.Second)
	orDefault(&c.CompleteTimeout, 5*time.Minute)
	orDefault(&c.AbortTimeout, 5*time.Second)
	orDefault(&c.Retry, retry.Objects)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate names the first field that makes no sense, of a Config with its
// defaults.
func (c Config) Validate() error {
	if err := checkEndpoint("Endpoint", c.Endpoint); err != nil {
		return err
	}
	if err := checkEndpoint("PublicEndpoint", c.PublicEndpoint); err != nil {
		return err
	}
	if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
		return fmt.Errorf("s3: Bucket is %q: %w", c.Bucket, err)
	}
	if c.Prefix != "" {
		if err := blob.CheckPrefix(c.Prefix); err != nil || len(c.Prefix) > maxPrefix {
			return fmt.Errorf("s3: Prefix is %.80q: it must be a key of at most %d bytes: %w", c.Prefix, maxPrefix, err)
		}
	}
	switch {
	case (c.AccessKey == "") != (c.SecretKey == ""):
		return errors.New("s3: of AccessKey and SecretKey only one is set: set both, or neither to use the environment's")
	case c.SessionToken != "" && c.AccessKey == "":
		return errors.New("s3: SessionToken is set without AccessKey and SecretKey: set them too")
	case c.Addressing != AddressAuto && c.Addressing != AddressPath && c.Addressing != AddressHost:
		return fmt.Errorf("s3: Addressing is %q: it must be %q, %q or %q", c.Addressing, AddressAuto, AddressPath, AddressHost)
	case c.PartSize < minPartSize || c.PartSize > maxPartSize:
		return fmt.Errorf("s3: PartSize is %d: S3 takes parts of %d to %d bytes", c.PartSize, minPartSize, int64(maxPartSize))
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
