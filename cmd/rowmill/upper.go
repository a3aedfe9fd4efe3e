package main

import (
	"context"
	"fmt"
	nethttp "net/http"
	"os"
	"strings"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/input"
)

func (m *Main) openPipeline(ctx context.Context) error {
	in, jobs := m.Settings.Inputs, m.Settings.Jobs
	downloader, err := input.New(input.Config{
		MaxBytes: int64(in.MaxBytes), ConnectTimeout: in.ConnectTimeout, StallTimeout: in.StallTimeout, TotalTimeout: in.TotalTimeout,
		AllowLoopback: in.AllowLoopback, AllowPrivateNetworks: in.AllowPrivateNetworks, Logger: m.Logger,
	})
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	words := newVocabularies(m.Settings.Tokenizers)
	if err := words.check(m.Catalog.All()); err != nil {
		return fmt.Errorf("tokenizers: %w", err)
	}
	config := actors.Config{
		Node: m.nodeName(), Store: m.Store, Blob: m.Bucket, Engines: m.Engines, Downloader: downloader,
		Input: input.Limits{
			MaxRows: in.MaxRows, MaxRowBytes: int64(in.MaxRowBytes), MaxInflatedBytes: int64(in.MaxBytes),
		},
		Logger: m.Logger, Registerer: m.Registry,
		LeaseTTL: jobs.LeaseTTL, MaxActive: jobs.MaxActive,
		ShardRows: jobs.ShardRows, ShardBytes: int64(jobs.ShardBytes),
		PartBytes: int64(jobs.PartBytes), PartInterval: jobs.PartInterval,
		MemoryBudget: int64(jobs.MemoryBudget), MaxAttempts: jobs.MaxAttempts, RowPatience: jobs.RowPatience,
		Tokenizers:        words.tokenizer,
		EstimateThreshold: m.Settings.Estimates.SamplingThreshold, EstimateSample: m.Settings.Estimates.SampleTokens,
		Version: buildInfo().Version, Clock: m.now, OwnsNone: m.Settings.Cluster.Role == settings.EnginesOnly,
		WaitForEngine: jobs.WaitForEngine, ProbeInterval: jobs.ProbeInterval, DrainTimeout: jobs.DrainTimeout,
		AdoptionTimeout: jobs.AdoptionTimeout, StoragePatience: jobs.StoragePatience,
		JanitorInterval: m.Settings.Retention.Interval, JanitorBatch: m.Settings.Retention.Batch, OrphanAge: m.Settings.Retention.OrphanAge,
	}
	if m.Cluster != nil {
		client, err := peer.NewClient(m.peerConfig())
		if err != nil {
			return err
		}
		m.opened("peer client", func(context.Context) error { client.Close(); return nil })
		config.Peers = peersOf{m.Cluster, client}
	}
	if jobs.MaxFailedRows != nil {
		config.MaxFailedRows = *jobs.MaxFailedRows
	}
	if m.Pipeline, err = actors.New(config); err != nil {
		return err
	}
	if err := m.Pipeline.Start(ctx); err != nil {
		return fmt.Errorf("start the pipeline: %w", err)
	}
	m.opened("pipeline", m.Pipeline.Stop)
	if m.peers != nil {
		m.peers.Serve(m.Pipeline.Answer)
	}
	m.Registry.MustRegister(engineMetrics{engines: m.Pipeline.Engines, host: m.host})
	return nil
}

// openListener opens the API's socket; requests wait until openAPI.
func (m *Main) openListener(ctx context.Context) error {
	var err error
	set := m.Settings.HTTP
	if m.api, err = listen(ctx, set.Listen, set.TLSCert, set.TLSKey, m.Logger); err != nil {
		return err
	}
	m.opened("listener", m.api.stop)
	m.Addr = m.api.Addr
	m.URL, _ = m.api.url()
	return nil
}

func (m *Main) openAPI(ctx context.Context) error {
	set := m.Settings.HTTP
	m.opened("API", m.api.stop)
	objects, err := m.serveObjects()
	if err != nil {
		return err
	}
	if m.Settings.APIKey == "" {
		if m.FirstKey, err = http.EnsureFirstKey(ctx, m.Store, m.now()); err != nil {
			return err
		}
	}
	config := http.Config{
		Store: m.Store, Bucket: m.Bucket, Catalog: m.Catalog, Service: service{m.Pipeline, m},
		Logger: m.Logger, Registerer: m.Registry, Gatherer: m.Registry,
		Now: m.now, EnginesOnly: m.Settings.Cluster.Role == settings.EnginesOnly,
		AdminKey: m.Settings.APIKey.Reveal(), Version: http.Version(buildInfo()),
		Objects: objects, MaxBodyBytes: int64(set.MaxBody), MaxRowBytes: int(m.Settings.Inputs.MaxRowBytes),
		RequestsPerMinute: set.RequestsPerMinute,
	}
	for _, q := range m.Settings.Quotas {
		config.Quotas = append(config.Quotas, http.Quota{Priority: q.Priority, RowQuota: *q.RowQuota, TokenQuota: *q.TokenQuota})
	}
	if set.AdminListen != "" {
		config.Gatherer = nil // metrics are on the other address
		if m.admin, err = listen(ctx, set.AdminListen, "", "", m.Logger); err != nil {
			return err
		}
		m.opened("admin listener", m.admin.stop)
		m.AdminAddr = m.admin.Addr
		m.serve(m.admin, adminHandler(m.Registry))
	}
	if m.API, err = http.New(config); err != nil {
		return err
	}
	m.serve(m.api, m.API.Handler())
	return nil
}

// serveObjects returns what answers the signed URLs of a directory; nil for
// objects that have an address of their own.
func (m *Main) serveObjects() (nethttp.Handler, error) {
	if m.folder == nil {
		return nil, nil
	}
	base, open := m.api.url()
	if public := m.Settings.HTTP.PublicURL; public != "" {
		base = strings.TrimRight(public, "/")
	} else if open {
		m.Logger.Warn("download links will name this machine only: set http.public_url (--public-url) to the address that clients use", "address", base)
	}
	if err := m.folder.SetPublicURL(base); err != nil {
		return nil, fmt.Errorf("http.public_url: %w", err)
	}
	return m.folder.Handler(), nil
}

// now is the time for records.
func (m *Main) now() time.Time { return time.Now().Add(m.Settings.ClockOffset) }

// serve answers on a listener until Close; any other end is a failure.
func (m *Main) serve(l *listener, handler nethttp.Handler) {
	go func() {
		if err := l.serve(handler); err != nil {
			m.failed <- err
		}
	}()
}

// nodeName is how records, logs and other nodes call this node.
func (m *Main) nodeName() string {
	if name := m.Settings.Cluster.Node; name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "node"
}
