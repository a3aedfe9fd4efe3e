package main

import (
	"context"
	"fmt"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/input"
)

// openPipeline starts what claims jobs and runs their rows.
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
