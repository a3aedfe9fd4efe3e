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

	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/recall"
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

// dialRedis opens the records in Redis.
func (m *Main) dialRedis(ctx context.Context) (*redis.Store, error) {
	set := m.Settings.Store
	authorities, err := verifiedBy(set.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("store.tls_ca: %w", err)
	}
	records, err := redis.Open(ctx, redis.Config{
		URL: set.URL.Reveal(), SentinelUsername: set.SentinelUser, SentinelPassword: set.SentinelPassword.Reveal(),
		TLS: authorities, Prefix: set.Prefix, Logger: m.Logger, Metrics: m.Registry,
	})
	if err != nil {
		return nil, fmt.Errorf("store.url: %w", err)
	}
	return records, nil
}

// openRedis opens the records in Redis for a node and says what its settings can lose.
func (m *Main) openRedis(ctx context.Context) error {
	set := m.Settings.Store
	records, err := m.dialRedis(ctx)
	if err != nil {
		return err
	}
	remembered := recall.New(recall.Config{Store: records, Log: m.Logger, For: m.Settings.Jobs.SettleTime})
	m.Store, m.redis, m.durability = remembered, records, records.Durability
	m.opened("store", func(context.Context) error { return remembered.Close() })
	warnings, err := records.Durability(ctx)
	if err != nil {
		return fmt.Errorf("store.url: %w", err)
	}
	for _, warning := range warnings {
		m.Logger.Warn("REDIS CAN LOSE RECORDS that were acknowledged", "reason", warning)
	}
	for _, warning := range set.Exposure() {
		m.Logger.Warn("THE RECORDS ARE OPEN TO STRANGERS", "reason", warning)
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
	secrets, err := m.Settings.HTTP.SigningKeys()
	if err != nil {
		return fmt.Errorf("http.signing_key: %w", err)
	}
	if err := keys.Use(secrets); err != nil {
		return err
	}
	m.signing = keys
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
	m.Bucket, m.s3 = bucket, bucket
	m.opened("bucket", func(context.Context) error { return bucket.Close() })
	return nil
}

// pair is the records and the bucket.
func (m *Main) pair() deployment.Pair {
	return deployment.Pair{Records: m.Store, RecordsName: m.records(), Bucket: m.Bucket, BucketName: m.objects(), Clock: m.now}
}

// settle refuses records and a bucket that do not belong together.
func (m *Main) settle(ctx context.Context) (err error) {
	m.deployment, err = m.pair().Settle(ctx)
	return err
}

// confirm says with an error that they do not belong together any more.
func (m *Main) confirm(ctx context.Context) error { return m.pair().Confirm(ctx, m.deployment) }

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

// deploymentCheck says whose records and objects these are. A node whose
// storage was exchanged is not ready: what it takes would be kept by others.
func (s service) deploymentCheck() http.Check {
	held := s.Storage().Held
	var skew *retention.SkewError
	switch {
	case held == nil:
		return http.Check{Name: "deployment", OK: true, Text: s.node.deployment.String()}
	case errors.As(held, &skew):
		return http.Check{Name: "deployment", OK: true, Text: s.node.deployment.String() + "; NO DATA IS REMOVED: " + held.Error()}
	}
	return http.Check{Name: "deployment", Text: "NO DATA IS REMOVED: " + held.Error()}
}

// checkRecords says where records are, and what of them can be lost.
func (s service) checkRecords(ctx context.Context, say func(name, text string)) {
	m := s.node
	if unknown := s.Storage().Unknown; unknown.Jobs > 0 {
		say("storage", fmt.Sprintf("%d jobs with %d bytes IN THE BUCKET AND IN NO RECORD: they stay until somebody decides, see rowmill storage check", unknown.Jobs, unknown.Bytes))
	}
	say("records", "at "+m.records())
	if m.durability == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	warnings, err := m.durability(ctx)
	cancel()
	if err != nil {
		say("records", "the server's settings cannot be read: "+short(err))
	}
	for _, warning := range warnings {
		say("records", "CAN BE LOST: "+warning)
	}
	for _, warning := range m.Settings.Store.Exposure() {
		say("records", "OPEN TO STRANGERS: "+warning)
	}
}

// lookedAt is for how long what was met with objects counts as their state.
const lookedAt = 5 * time.Second

// checkObjects says where objects are, and since when they cannot be used. What
// it knows is what real calls have met; where there were none lately it looks,
// and does not wait for that look to the end.
func (s service) checkObjects() http.Check {
	known := s.Watch()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		known.Look(context.Background(), lookedAt)
	}()
	select {
	case <-looked:
	case <-time.After(remoteTimeout):
	}
	outage, away := known.Objects()
	if !away {
		return http.Check{Name: "objects", OK: true, Text: "at " + s.node.objects()}
	}
	what := "CANNOT BE USED"
	if outage.Full {
		what = "HAVE NO ROOM"
	}
	return http.Check{Name: "objects", Text: fmt.Sprintf("%s since %s, jobs wait; at %s: %s",
		what, outage.Since.Format(time.RFC3339), s.node.objects(), short(outage.Err))}
}
