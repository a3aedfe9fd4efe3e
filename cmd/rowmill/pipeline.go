package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/input"
)

// openPipeline starts what claims jobs and runs their rows.
func (m *Main) openPipeline(ctx context.Context) error {
	in, jobs := m.Settings.Inputs, m.Settings.Jobs
	downloader, err := input.New(input.Config{
		MaxBytes: int64(in.MaxBytes), ConnectTimeout: in.ConnectTimeout, StallTimeout: in.StallTimeout, TotalTimeout: in.TotalTimeout,
		AllowLoopback: in.AllowLoopback, AllowPrivateNetworks: in.AllowPrivateNetworks, Own: m.ownAddresses, Logger: m.Logger,
	})
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	words := newVocabularies(m.Settings.Tokenizers)
	if err := words.check(m.Catalog.All()); err != nil {
		return fmt.Errorf("tokenizers: %w", err)
	}
	settle := jobs.SettleTime
	if m.Settings.Store.Embedded() { // it forgets nothing
		settle = 0
	}
	m.newWebhooks()
	m.asked = newAsked()
	config := actors.Config{
		Node: m.nodeName(), Store: m.Store, Blob: m.Bucket, Engines: m.Engines,
		Inputs: actors.Inputs{
			Downloader: downloader, Readers: in.Readers, Retention: jobs.InputRetention,
			Limits: input.Limits{MaxRows: in.MaxRows, MaxRowBytes: int64(in.MaxRowBytes), MaxInflatedBytes: int64(in.MaxBytes)},
		},
		Logger: m.Logger, Registerer: m.Registry, Tracer: m.Tracer,
		Version: buildInfo().Version, Clock: m.now, Tokenizers: words.tokenizer,
		StoragePatience: jobs.StoragePatience, MemoryBudget: int64(jobs.MemoryBudget), DrainTimeout: jobs.DrainTimeout,
		Ownership: actors.Ownership{
			OwnsNone: m.Settings.Cluster.Role == settings.EnginesOnly,
			LeaseTTL: jobs.LeaseTTL, AdoptionTimeout: jobs.AdoptionTimeout, MaxActive: jobs.MaxActive, KeptPlaces: jobs.KeptPlaces, Weights: jobs.Weights,
			Settle: settle,
		},
		Shards:    actors.Shards{Rows: jobs.ShardRows, Bytes: int64(jobs.ShardBytes), Remembered: jobs.DedupRows},
		Parts:     actors.Parts{Bytes: int64(jobs.PartBytes), Interval: jobs.PartInterval, Joined: int64(jobs.JoinBytes)},
		Rows:      actors.Rows{MaxAttempts: jobs.MaxAttempts, Patience: jobs.RowPatience},
		Estimates: actors.Estimates{Threshold: m.Settings.Estimates.SamplingThreshold, Sample: m.Settings.Estimates.SampleTokens},
		Servers:   actors.Servers{Wait: jobs.WaitForEngine, ProbeInterval: jobs.ProbeInterval},
		Ended:     m.announce,
		Facts:     func(ctx context.Context) any { return m.facts(ctx) },
		Figures:   m.figures,
		Janitor: actors.Janitor{
			Confirm:  m.confirm,
			Interval: m.Settings.Retention.Interval, Batch: m.Settings.Retention.Batch, OrphanAge: m.Settings.Retention.OrphanAge,
			ClockTolerance: m.Settings.Retention.ClockTolerance, CatchUp: m.Settings.Retention.CatchUp,
		},
	}
	config.Servers.Pace = m.Settings.Pace
	config.Servers.Asked = cmp.Or(jobs.AskedModels, -1)
	config.Servers.Warm = func(served []engine.ServedModel) { words.warm(m.Catalog, served) }
	config.Servers.Known = func(s engine.ServedModel) bool { return m.Catalog.Describes(s.Names()...) }
	if m.Cluster != nil {
		if config.Peers, err = m.openPeers(); err != nil {
			return err
		}
	}
	if jobs.MaxFailedRows != nil {
		config.Rows.MaxFailed = *jobs.MaxFailedRows
	}
	if m.Pipeline, err = actors.New(config); err != nil {
		return err
	}
	if err := m.Pipeline.Start(ctx); err != nil {
		return fmt.Errorf("start the pipeline: %w", err)
	}
	m.opened("pipeline", m.Pipeline.Stop)
	m.startWebhooks()
	if m.peers != nil {
		m.peers.Serve(m.Pipeline.Service())
	}
	m.Registry.MustRegister(engineMetrics{engines: m.Pipeline.Engines, host: m.host})
	return nil
}
