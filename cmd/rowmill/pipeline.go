package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/http/webhook/sender"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
)

// jobPipeline is the part of a node that claims jobs and runs their rows.
type jobPipeline struct {
	partBase
	traces    *tracingPart
	storage   *nodeStorage
	engines   *nodeEngines
	listeners *listeners
	members   *clusterMembership
	facts     func(ctx context.Context) any                       // runs this node's checks of itself, when any node asks for the results
	figures   func(ctx context.Context, what string) (any, error) // returns this node's figures of the kind what, when any node asks for them

	*actors.System
	Webhooks *sender.Sender
}

// Start starts the pipeline, the sender of webhooks and the answers to requests of
// other nodes.
func (p *jobPipeline) Start(ctx context.Context) error {
	p.Webhooks = p.newWebhookSender()
	config, err := p.buildConfig()
	if err != nil {
		return err
	}
	if p.System, err = actors.New(config); err != nil {
		return err
	}
	if err := p.System.Start(ctx); err != nil {
		return fmt.Errorf("start the pipeline: %w", err)
	}
	p.addCloser("pipeline", p.System.Stop)
	if p.Settings.Cluster.Role != settings.EnginesOnly { // a node of role engines owns no jobs, so it sends no events
		p.Webhooks.Start()
		p.addCloser("webhooks", p.Webhooks.Stop)
	}
	if p.members.peers != nil {
		p.members.peers.SetHandler(p.Service())
	}
	p.Registry.MustRegister(engineCollector{engines: p.System.Engines, host: p.engines.engineHost})
	return nil
}

// buildConfig builds the pipeline's configuration from the settings.
func (p *jobPipeline) buildConfig() (config actors.Config, err error) {
	in, jobs := p.Settings.Inputs, p.Settings.Jobs
	downloader, err := input.New(input.Config{
		MaxBytes: int64(in.MaxBytes), ConnectTimeout: in.ConnectTimeout, StallTimeout: in.StallTimeout, TotalTimeout: in.TotalTimeout,
		AllowLoopback: in.AllowLoopback, AllowPrivateNetworks: in.AllowPrivateNetworks, OwnAddresses: p.ownAddresses, Logger: p.Logger,
	})
	if err != nil {
		return config, fmt.Errorf("inputs: %w", err)
	}
	words := newVocabularyCache(p.Settings.Tokenizers)
	if err := words.validateAll(p.engines.Catalog.All()); err != nil {
		return config, fmt.Errorf("tokenizers: %w", err)
	}
	settle := jobs.SettleTime
	if p.Settings.Store.IsEmbedded() { // the embedded store does not lose writes
		settle = 0
	}
	config = actors.Config{
		Node: p.nodeName(), Store: p.storage.Store, Blob: p.storage.Bucket, Engines: p.engines.Engines,
		Inputs: actors.InputConfig{
			Downloader: downloader, Sources: p.storage.Sources, Readers: in.Readers, Retention: jobs.InputRetention,
			Limits: input.Limits{MaxRows: in.MaxRows, MaxRowBytes: int64(in.MaxRowBytes), MaxInflatedBytes: int64(in.MaxBytes)},
		},
		Logger: p.Logger, Registerer: p.Registry, Tracer: p.traces.Tracer,
		Version: readBuildMetadata().Version, Clock: p.now, Tokenizers: words.findTokenizer,
		StoragePatience: jobs.StoragePatience, MemoryBudget: int64(jobs.MemoryBudget), DrainTimeout: jobs.DrainTimeout,
		Ownership: actors.OwnershipConfig{
			OwnsNone: p.Settings.Cluster.Role == settings.EnginesOnly,
			LeaseTTL: jobs.LeaseTTL, AdoptionTimeout: jobs.AdoptionTimeout, MaxActive: jobs.MaxActive, KeptPlaces: jobs.KeptPlaces, Weights: jobs.Weights,
			ParkTime: jobs.ParkTime, Settle: settle,
		},
		Shards:    actors.ShardConfig{Rows: jobs.ShardRows, Bytes: int64(jobs.ShardBytes), Remembered: jobs.DedupRows},
		Parts:     actors.PartConfig{Bytes: int64(jobs.PartBytes), Interval: jobs.PartInterval, Joined: int64(jobs.JoinBytes)},
		Rows:      actors.RowConfig{MaxAttempts: jobs.MaxAttempts, Patience: jobs.RowPatience},
		Estimates: actors.EstimateConfig{Rows: p.Settings.Estimates.SampleRows, Tokens: p.Settings.Estimates.SampleTokens, Wait: p.Settings.Estimates.Wait},
		Servers: actors.ServerConfig{
			Wait: jobs.WaitForEngine, ProbeInterval: jobs.ProbeInterval, Pace: p.Settings.EngineRateLimit, MaxTrialModels: cmp.Or(jobs.AskedModels, -1),
			Warm:  func(served []engine.ServedModel) { words.preload(p.engines.Catalog, served) },
			Known: func(s engine.ServedModel) bool { return p.engines.Catalog.KnowsCapability(s.Names()...) },
		},
		Ended: p.announceJobEnd,
		Reports: actors.ReportConfig{
			Facts:        p.facts,
			FactsTimeout: 4 * p.checkTimeout, // three checks of checkTimeout each, and time for the network
			Figures:      p.figures,
		},
		Janitor: actors.JanitorConfig{
			Confirm:  p.storage.confirmDeployment,
			Interval: p.Settings.Retention.Interval, Batch: p.Settings.Retention.Batch, OrphanAge: p.Settings.Retention.OrphanAge,
			ScrubRate:      int64(p.Settings.Retention.ScrubRate),
			ClockTolerance: p.Settings.Retention.ClockTolerance, CatchUp: p.Settings.Retention.CatchUp,
		},
	}
	if p.members.Cluster != nil {
		if config.Peers, err = p.members.newPeerClient(); err != nil {
			return config, err
		}
	}
	if jobs.MaxFailedRows != nil {
		config.Rows.MaxFailed = *jobs.MaxFailedRows
	}
	return config, nil
}

// drainRows makes the node take no more rows, and waits up to jobs.drain_timeout for the
// rows in flight. After an error, the unfinished rows run again later.
func (p *jobPipeline) drainRows(ctx context.Context) error {
	if len(p.closers) == 0 { // the pipeline has not started, or has stopped
		return nil
	}
	p.watchdog.setClosingPart("rows in flight")
	ctx, cancel := context.WithTimeout(ctx, p.Settings.Jobs.DrainTimeout)
	defer cancel()
	if err := p.Drain(ctx); err != nil {
		return fmt.Errorf("rows in flight were given up and will be run again: %w", err)
	}
	return nil
}

// Stop stops this part of the node. It is needed because partBase and actors.System, which
// pipeline embeds, both have a method Stop.
func (p *jobPipeline) Stop(ctx context.Context) error { return p.partBase.Stop(ctx) }

// newWebhookSender creates the sender of webhook events. The settings of inputs that allow
// or forbid networks also apply to the receivers of events.
func (p *jobPipeline) newWebhookSender() *sender.Sender {
	in := p.Settings.Inputs
	return sender.New(sender.Config{
		Store: p.storage.Store, Schedule: p.Settings.Webhooks.Retries, Clock: p.now, Logger: p.Logger, Registerer: p.Registry, Reason: input.FailureReason, Nodes: p.members.nodeCount,
		Transport: input.NewTransport(input.Config{
			ConnectTimeout: in.ConnectTimeout, AllowLoopback: in.AllowLoopback, AllowPrivateNetworks: in.AllowPrivateNetworks, OwnAddresses: p.ownAddresses,
		}),
	})
}

// announceJobEnd stores the webhook events about the end of a job, and wakes the sender if
// there are any.
func (p *jobPipeline) announceJobEnd(ctx context.Context, rec *store.Record) error {
	made, err := webhook.CreateDeliveries(ctx, p.storage.Store, rec)
	if made {
		p.Webhooks.Wake()
	}
	return err
}

// ownAddresses returns the HOST:PORT of the listeners and the inference servers of all
// nodes. The node does not fetch inputs from these addresses, and sends no webhook
// events to them. Callers must wait until the pipeline has started.
func (p *jobPipeline) ownAddresses() []string {
	addresses := []string{p.listeners.Addr.String()}
	if p.listeners.AdminAddr != nil {
		addresses = append(addresses, p.listeners.AdminAddr.String())
	}
	for _, e := range p.engines.configured() { // also servers that load now, or do not run
		addresses = append(addresses, urlHostPort(e.URL))
	}
	// Servers that were found or are simulated have no URL in the settings. p.System
	// lists the servers that Start opened only after their actors run.
	for _, e := range p.engines.Engines {
		addresses = append(addresses, p.engines.engineHost(e.Name()))
	}
	for _, e := range p.System.Engines() {
		addresses = append(addresses, p.engines.engineHost(e.Name))
	}
	if p.members.Cluster == nil {
		return addresses
	}
	set := p.Settings.Cluster
	addresses = append(addresses, set.Listen, set.Advertise, p.members.peers.Addr().String(), set.PeerAdvertise)
	for _, member := range p.members.Cluster.Members() {
		addresses = append(addresses, member.Peer, urlHostPort(member.API))
	}
	return addresses
}

// urlHostPort returns the HOST:PORT of a URL, with the default port of its scheme if it
// has none.
func urlHostPort(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), usual))
}
