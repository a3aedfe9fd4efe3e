package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/input/sources"
	resultarchive "github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/replay"
)

// nodeStorage is the part of a node that opens its records and its objects.
type nodeStorage struct {
	partBase
	Store  store.Store
	Bucket blob.Bucket
	// Sources are the places of Settings.Sources.
	Sources *sources.Sources

	deployment deployment.Identity // identity of the deployment to which Store and Bucket belong
	redis      *redis.Store        // the Redis store that Store wraps; nil if the records are embedded
	s3         *s3.Bucket          // the same bucket as Bucket, if objects are in S3; otherwise nil
	folder     *dir.Bucket         // the same bucket as Bucket, if objects are in a directory; otherwise nil
	signing    *dir.Keyring        // keys that sign the URLs of folder
	backingUp  atomic.Bool         // true while a backup of Store and folder is in progress
}

// Start opens the records and the objects. It returns an error if they belong to
// different deployments.
func (s *nodeStorage) Start(ctx context.Context) error {
	err := s.open(ctx)
	if err == nil {
		s.deployment, err = s.deploymentStorage().EnsureIdentity(ctx)
	}
	if err == nil {
		err = s.openSources()
	}
	return err
}

func (s *nodeStorage) open(ctx context.Context) error {
	if err := s.openStore(ctx); err != nil {
		return err
	}
	return s.openBucket(ctx)
}

// openStore opens the records. It runs before openBucket: the embedded store locks its
// file, so a second process on the same data directory fails before it changes
// anything.
func (s *nodeStorage) openStore(ctx context.Context) error {
	var err error
	if s.Settings.Data, err = filepath.Abs(s.Settings.Data); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if s.Settings.Store.IsEmbedded() || s.Settings.Objects.URL == "" {
		if err := os.MkdirAll(s.Settings.Data, 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
	}
	if !s.Settings.Store.IsEmbedded() {
		return s.openRedis(ctx)
	}
	records, err := bolt.Open(ctx, bolt.Config{
		Path: filepath.Join(s.Settings.Data, "rowmill.db"), Clock: s.now, Logger: s.Logger, Metrics: s.Registry,
	})
	if err != nil {
		return err
	}
	s.Store = records
	s.addCloser("store", func(context.Context) error { return records.Close() })
	return nil
}

// dialRedis opens the store in the Redis that store.url names.
func (s *nodeStorage) dialRedis(ctx context.Context) (*redis.Store, error) {
	set := s.Settings.Store
	authorities, err := loadTLSConfig(set.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("store.tls_ca: %w", err)
	}
	if authorities == nil && strings.HasPrefix(set.URL.Reveal(), "rediss") {
		_, _ = x509.SystemCertPool() // load the system's certificates now: on a slow disk this takes longer than the timeout of a connection
	}
	records, err := redis.Open(ctx, redis.Config{
		URL: set.URL.Reveal(), SentinelUsername: set.SentinelUser, SentinelPassword: set.SentinelPassword.Reveal(),
		AllowLostWrites: set.AllowLostWrites, TLS: authorities, Prefix: set.Prefix, Logger: s.Logger, Metrics: s.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("store.url: %w", err)
	}
	return records, nil
}

// openRedis opens the records in Redis for a node, and repeats writes that Redis loses.
// It logs a warning for each Redis setting that can lose or expose records.
func (s *nodeStorage) openRedis(ctx context.Context) error {
	set := s.Settings.Store
	records, err := s.dialRedis(ctx)
	if err != nil {
		return err
	}
	remembered := replay.New(replay.Config{Store: records, Log: s.Logger, KeepFor: s.Settings.Jobs.SettleTime, FailedAt: records.FailedAt})
	s.Store, s.redis = remembered, records
	s.addCloser("store", func(context.Context) error { return remembered.Close() })
	warnings, err := records.ListDurabilityRisks(ctx)
	if err != nil {
		return fmt.Errorf("store.url: %w", err)
	}
	for _, warning := range warnings {
		s.Logger.Warn("REDIS CAN LOSE RECORDS that were acknowledged", "reason", warning)
	}
	for _, warning := range set.ExposureWarnings() {
		s.Logger.Warn("ANYONE ON THE NETWORK CAN REACH THE RECORDS", "reason", warning)
	}
	return nil
}

// loadTLSConfig returns TLS settings that trust only the certificate authorities in a PEM
// file. If file is empty, it returns nil.
func loadTLSConfig(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// openBucket opens the objects: in S3 if objects.url is set, otherwise in the data
// directory.
func (s *nodeStorage) openBucket(ctx context.Context) error {
	if s.Settings.Objects.URL != "" {
		return s.openS3(ctx)
	}
	keys, err := dir.LoadKeyring(ctx, s.Store)
	if err != nil {
		return err
	}
	secrets, err := s.Settings.HTTP.SigningKeys()
	if err != nil {
		return fmt.Errorf("http.signing_key: %w", err)
	}
	if err := keys.Use(secrets); err != nil {
		return err
	}
	s.signing = keys
	s.folder, err = dir.Open(dir.Config{Root: s.Settings.Data, Keys: keys, Clock: s.now, Logger: s.Logger})
	if err != nil {
		return err
	}
	s.Bucket = s.folder
	s.addCloser("bucket", func(context.Context) error { return s.folder.Close() })
	return nil
}

func (s *nodeStorage) openS3(ctx context.Context) error {
	set := s.Settings.Objects
	name, prefix := set.Bucket()
	bucket, err := s3.Open(ctx, s3.Config{
		Endpoint: set.ServiceURL(), PublicEndpoint: set.PublicEndpoint, Region: set.Region, Bucket: name, Prefix: prefix,
		AccessKey: set.AccessKey.Reveal(), SecretKey: set.SecretKey.Reveal(), Logger: s.Logger, Metrics: s.Registry,
	})
	if err != nil {
		return fmt.Errorf("objects.url: %w", err)
	}
	s.Bucket, s.s3 = bucket, bucket
	s.addCloser("bucket", func(context.Context) error { return bucket.Close() })
	return nil
}

// deploymentStorage returns the records and the bucket together, with the clock of the node.
func (s *nodeStorage) deploymentStorage() deployment.Storage {
	return deployment.Storage{Records: s.Store, RecordsName: s.recordsLocation(), Bucket: s.Bucket, BucketName: s.objectsLocation(), Clock: s.now}
}

// checkConsistency compares the records with the objects in the bucket. If readResults is true, it also
// reads all results and parts of ended jobs. From time to time it calls onProgress with the
// number of jobs that it has checked; onProgress may be nil.
func (s *nodeStorage) checkConsistency(ctx context.Context, readResults bool, onProgress func(jobs int)) (deployment.NodeReport, error) {
	o := deployment.CheckOptions{Progress: onProgress}
	if readResults {
		o.Read = func(ctx context.Context, rec store.Record) (damaged []deployment.DamagedItem, err error) {
			faults, _, err := resultarchive.Scrub(ctx, s.Store, s.Bucket, rec)
			for _, f := range faults {
				damaged = append(damaged, deployment.DamagedItem{JobID: rec.Job.ID, Key: f.Key, Reason: f.Err.Error()})
			}
			return damaged, err
		}
	}
	c := deployment.NodeReport{RecordsAt: s.recordsLocation(), ObjectsAt: s.objectsLocation()}
	var err error
	if c.CheckReport, err = s.deploymentStorage().Check(ctx, o); err != nil {
		return c, err
	}
	now, err := s.Store.Time(ctx)
	c.SkewSeconds = s.now().Sub(now).Round(time.Second).Seconds()
	return c, err
}

// confirmDeployment returns an error if the records and the bucket no longer belong to the same
// deployment.
func (s *nodeStorage) confirmDeployment(ctx context.Context) error {
	return s.deploymentStorage().ConfirmIdentity(ctx, s.deployment)
}

// recordsLocation returns where the records are: the path of a file, or the address of Redis
// without its password.
func (s *nodeStorage) recordsLocation() string {
	if s.Settings.Store.IsEmbedded() {
		return filepath.Join(s.Settings.Data, "rowmill.db")
	}
	return s.Settings.Store.Location()
}

// objectsLocation returns where the objects are: a directory, or the S3 URL and the address of
// the S3 service.
func (s *nodeStorage) objectsLocation() string {
	if s.folder != nil {
		return filepath.Join(s.Settings.Data, "objects")
	}
	return s.Settings.Objects.URL + " at " + s.Settings.Objects.ServiceURL()
}

func (s *nodeStorage) reloadableSecrets() (all []reloadableSecret) {
	if s.redis != nil {
		all = append(all, newParsedSecret("store.url", func(set settings.Settings) settings.Secret { return set.Store.URL },
			func(set settings.Settings) (string, error) { return set.Store.URL.Reveal(), nil }, s.redis.SetURL))
	}
	if s.s3 != nil {
		all = append(all, reloadableSecret{
			name: "objects.access_key",
			valueIn: func(set settings.Settings) string {
				return set.Objects.AccessKey.Reveal() + "\n" + set.Objects.SecretKey.Reveal()
			},
			apply: func(set settings.Settings) error {
				return s.s3.SetKeys(set.Objects.AccessKey.Reveal(), set.Objects.SecretKey.Reveal())
			},
		})
	}
	return all
}
