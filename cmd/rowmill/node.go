package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
)

// NodeProcess is a running node. The drawing shows which parts of the node use each other.
//
//	        settings
//	           │
//	Catalog    │    Storage ◄─── DIR/rowmill.db or Redis, and their signing keys
//	   │       │      │     ◄─── DIR/objects or S3
//	   │       │      │
//	   │    Engines ──┼──────► inference servers: named, found, simulated, or started by Placement
//	   │       │      │
//	   │       │      │  Members ◄─► other nodes
//	   │       │      │      │ list of live nodes; requests between nodes
//	   │    ┌──▼──────▼──────▼──┐ ◄── Discovery: servers found later
//	   │    │     Pipeline      │  claims jobs from Storage, runs rows on Engines
//	   │    └──▲─────────────┬──┘  and on engines of other nodes
//	   │       │             └────► Webhooks: send events about ended jobs
//	   │       │ new jobs, cancellations, drain, list of nodes
//	   │    ┌──┴─────────┐
//	   └───►│    API     │  reads Storage; serves objects of a directory
//	        └──▲─────────┘
//	           │
//	       Listeners: API, administration (metrics, pprof)
//
// Run starts each part after the parts that it uses. The sockets of Listeners open before
// Members and Pipeline start, for two reasons: Members tells other nodes the address of
// the API, and Pipeline refuses inputs from the node's own addresses. Close drains the
// pipeline while the API still answers and other nodes take over its jobs. Then Close
// stops the parts in the reverse order.
type NodeProcess struct {
	*nodeEnv

	Tracing      *tracingPart
	Storage      *nodeStorage
	LocalServers *localServers
	Engines      *nodeEngines
	Listeners    *listeners
	Members      *clusterMembership
	Pipeline     *jobPipeline
	Placement    *serverPlacement
	Discovery    *serverDiscovery
	Meter        *metricsSampler
	API          *apiPart
	Secrets      *secretReloader
	Certificates *certificateMonitor
	Service      *nodeService // gives the API and other nodes access to the pipeline
}

// newNodeProcess creates the parts of a node and connects them. It starts no part.
func newNodeProcess(set settings.Settings, log *slog.Logger) *NodeProcess {
	n := newNodeEnv(set, log)
	base := partBase{nodeEnv: n}
	m := &NodeProcess{nodeEnv: n, Tracing: &tracingPart{partBase: base}, Storage: &nodeStorage{partBase: base}, Engines: &nodeEngines{partBase: base, GPUs: gpu.NvidiaSMI{}}}
	m.LocalServers = &localServers{partBase: base, engines: m.Engines, storage: m.Storage}
	m.Listeners = &listeners{partBase: base, failed: make(chan error, 2)}
	m.Members = &clusterMembership{partBase: base, listeners: m.Listeners, ready: func() bool { return !m.Pipeline.Draining() }}
	m.Pipeline = &jobPipeline{partBase: base, traces: m.Tracing, storage: m.Storage, engines: m.Engines, listeners: m.Listeners, members: m.Members}
	m.Placement = &serverPlacement{partBase: base, servers: m.LocalServers, pipeline: m.Pipeline}
	m.Discovery = &serverDiscovery{partBase: base, engines: m.Engines, pipeline: m.Pipeline}
	m.Meter = &metricsSampler{partBase: base, read: func(now time.Time) (metricsSample, error) { return readMetrics(now, n.Registry, m.Pipeline.Engines()) }}
	m.Secrets, m.Certificates = &secretReloader{partBase: base}, &certificateMonitor{base}
	m.Service = &nodeService{jobPipeline: m.Pipeline, meter: m.Meter, secrets: m.Secrets, recent: newAnswerCache()}
	m.Pipeline.facts, m.Pipeline.figures = m.Service.collectFacts, m.Service.localNodeData
	m.API = &apiPart{partBase: base, pipeline: m.Pipeline, service: m.Service}
	m.Secrets.holders = []secretHolder{m.API, m.Members, m.Storage, m.Tracing, m.Engines}
	return m
}

// parts returns the parts of the node in the order in which Run starts them.
func (m *NodeProcess) parts() []nodePart {
	return []nodePart{m.Tracing, m.Storage, m.LocalServers, m.Engines, m.Listeners, m.Members, m.Pipeline, m.Placement, m.Discovery, m.Meter, m.API, m.Secrets, m.Certificates}
}

// Run starts the parts of the node and returns when the node answers requests. If a
// part fails to start, Run stops the parts that were started and returns the error.
func (m *NodeProcess) Run(ctx context.Context) error {
	var err error
	m.Engines.Catalog, err = loadCatalog(m.Settings.Catalog)
	for _, part := range m.parts() {
		if err == nil {
			err = part.Start(ctx)
		}
	}
	if err == nil {
		return nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTimeout)
	defer cancel()
	return errors.Join(err, m.stopParts(closing))
}

// Failed returns the channel that receives the error of a listener that stopped by
// itself.
func (m *NodeProcess) Failed() <-chan error { return m.Listeners.failed }

// Close stops the node: the node takes no new jobs, finishes and commits the rows in
// flight, and then stops its parts, all within one deadline. A second call does
// nothing.
func (m *NodeProcess) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.Settings.Jobs.DrainTimeout+graceTimeout)
	defer cancel()
	return errors.Join(m.Pipeline.drainRows(ctx), m.stopParts(ctx))
}

func (m *NodeProcess) stopParts(ctx context.Context) error {
	var errs []error
	for _, part := range slices.Backward(m.parts()) {
		errs = append(errs, part.Stop(ctx))
	}
	return errors.Join(errs...)
}
