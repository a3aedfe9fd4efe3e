package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/redis"
)

// openStore opens the records. They come first: the lock of the embedded store
// refuses a second process before that touches anything.
func (m *Main) openStore(ctx context.Context) error {
	var err error
	if m.Catalog, err = loadCatalog(m.Settings.Catalog); err != nil {
		return err
	}
	if m.Settings.Data, err = filepath.Abs(m.Settings.Data); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	if m.Settings.Store.Embedded() || m.Settings.Objects.URL == "" {
		if err := os.MkdirAll(m.Settings.Data, 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
	}
	if !m.Settings.Store.Embedded() {
		return m.openRedis(ctx)
	}
	records, err := bolt.Open(ctx, bolt.Config{
		Path: filepath.Join(m.Settings.Data, "rowmill.db"), Clock: m.now, Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return err
	}
	m.Store = records
	m.opened("store", func(context.Context) error { return records.Close() })
	return nil
}

// openRedis opens the records in Redis and says what its settings can lose.
func (m *Main) openRedis(ctx context.Context) error {
	set := m.Settings.Store
	authorities, err := verifiedBy(set.TLSCA)
	if err != nil {
		return fmt.Errorf("store.tls_ca: %w", err)
	}
	records, err := redis.Open(ctx, redis.Config{
		URL: set.URL.Reveal(), SentinelUsername: set.SentinelUser, SentinelPassword: set.SentinelPassword.Reveal(),
		TLS: authorities, Prefix: set.Prefix, Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return fmt.Errorf("store.url: %w", err)
	}
	m.Store, m.durability = records, records.Durability
	m.opened("store", func(context.Context) error { return records.Close() })
	warnings, err := records.Durability(ctx)
	if err != nil {
		return fmt.Errorf("store.url: %w", err)
	}
	for _, warning := range warnings {
		m.Logger.Warn("REDIS CAN LOSE RECORDS that were acknowledged", "reason", warning)
	}
	return nil
}

// verifiedBy is how servers are verified whose certificates must come from the
// authorities in a PEM file; nil without a file.
func verifiedBy(file string) (*tls.Config, error) {
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

// openBucket opens the objects.
func (m *Main) openBucket(ctx context.Context) error {
	if m.Settings.Objects.URL != "" {
		return m.openS3(ctx)
	}
	keys, err := dir.LoadKeyring(ctx, m.Store)
	if err != nil {
		return err
	}
	m.folder, err = dir.Open(dir.Config{Root: m.Settings.Data, Keys: keys, Clock: m.now, Logger: m.Logger})
	if err != nil {
		return err
	}
	m.Bucket = m.folder
	m.opened("bucket", func(context.Context) error { return m.folder.Close() })
	return nil
}

func (m *Main) openS3(ctx context.Context) error {
	set := m.Settings.Objects
	name, prefix := set.Bucket()
	bucket, err := s3.Open(ctx, s3.Config{
		Endpoint: set.Service(), PublicEndpoint: set.PublicEndpoint, Region: set.Region, Bucket: name, Prefix: prefix,
		AccessKey: set.AccessKey.Reveal(), SecretKey: set.SecretKey.Reveal(), Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return fmt.Errorf("objects.url: %w", err)
	}
	m.Bucket = bucket
	m.opened("bucket", func(context.Context) error { return bucket.Close() })
	return nil
}

// records says where records are, without any password.
func (m *Main) records() string {
	if m.Settings.Store.Embedded() {
		return filepath.Join(m.Settings.Data, "rowmill.db")
	}
	return m.Settings.Store.Place()
}

// objects says where objects are.
func (m *Main) objects() string {
	if m.folder != nil {
		return filepath.Join(m.Settings.Data, "objects")
	}
	return m.Settings.Objects.URL + " at " + m.Settings.Objects.Service()
}

func loadCatalog(name string) (*catalog.Catalog, error) {
	if name == "" {
		return catalog.Default(), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer file.Close()
	c, err := catalog.Load(file)
	if err != nil {
		return nil, fmt.Errorf("catalog %s: %w", name, err)
	}
	return c, nil
}

// remoteTimeout bounds each look at a server that nodes share, well below the
// patience of those who ask whether a node is ready.
const remoteTimeout = 500 * time.Millisecond

// checkStorage says where records and objects are, and what is wrong with it.
func (s service) checkStorage(ctx context.Context, say func(name, text string)) {
	m := s.node
	say("records", "at "+m.records())
	if m.durability != nil {
		ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
		warnings, err := m.durability(ctx)
		cancel()
		if err != nil {
			say("records", "the server's settings cannot be read: "+short(err))
		}
		for _, warning := range warnings {
			say("records", "CAN BE LOST: "+warning)
		}
	}
	if m.folder != nil {
		say("objects", "at "+m.objects())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	defer cancel()
	if _, err := m.Bucket.Stat(ctx, "ready"); err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		say("objects", "CANNOT BE REACHED at "+m.objects()+": "+short(err))
		return
	}
	say("objects", "at "+m.objects())
}
