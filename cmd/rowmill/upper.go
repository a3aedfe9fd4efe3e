package main

import (
	"context"
	"fmt"
	nethttp "net/http"
	"os"
	"strings"
	"time"

	"github.com/rowmill/rowmill/actors"
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
		Node: nodeName(), Store: m.Store, Blob: m.Bucket, Engines: m.Engines, Downloader: downloader,
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
		WaitForEngine: jobs.WaitForEngine, ProbeInterval: jobs.ProbeInterval, DrainTimeout: jobs.DrainTimeout,
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
	m.Registry.MustRegister(engineMetrics{engines: m.Pipeline.Engines, host: m.host})
	return nil
}

func (m *Main) openAPI(ctx context.Context) error {
	var err error
	set := m.Settings.HTTP
	if m.api, err = listen(ctx, set.Listen, set.TLSCert, set.TLSKey, m.Logger); err != nil {
		return err
	}
	m.opened("listener", m.api.stop)
	m.Addr = m.api.Addr
	base, open := m.api.url()
	m.URL = base
	if set.PublicURL != "" {
		base = strings.TrimRight(set.PublicURL, "/")
	} else if open {
		m.Logger.Warn("download links will name this machine only: set http.public_url (--public-url) to the address that clients use", "address", base)
	}
	if err := m.Bucket.SetPublicURL(base); err != nil {
		return fmt.Errorf("http.public_url: %w", err)
	}
	if m.Settings.APIKey == "" {
		if m.FirstKey, err = http.EnsureFirstKey(ctx, m.Store, time.Now()); err != nil {
			return err
		}
	}
	config := http.Config{
		Store: m.Store, Bucket: m.Bucket, Catalog: m.Catalog, Service: service{m.Pipeline, m},
		Logger: m.Logger, Registerer: m.Registry, Gatherer: m.Registry,
		AdminKey: m.Settings.APIKey.Reveal(), Version: http.Version(buildInfo()),
		Objects: m.Bucket.Handler(), MaxBodyBytes: int64(set.MaxBody), MaxRowBytes: int(m.Settings.Inputs.MaxRowBytes),
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

// serve answers on a listener until Close; any other end is a failure.
func (m *Main) serve(l *listener, handler nethttp.Handler) {
	go func() {
		if err := l.serve(handler); err != nil {
			m.failed <- err
		}
	}()
}

// nodeName is how records and logs call this node.
func nodeName() string {
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "node"
}
