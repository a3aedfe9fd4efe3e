package actors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/actors/work"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A process is what the actors of a node have in common, and the System with them.
type process struct {
	cfg       Config
	metrics   *metrics
	log       *slog.Logger
	budget    *work.Budget
	slots     slots
	published *published
	storage   *storage.Watch
	downloads *ingest.Downloads
	errands   *commit.Errands // of owners elsewhere
	counters  *prompt.Counters
	transport *transport
	address   string          // of this node for others; empty on a single node
	all       *sync.WaitGroup // tasks and keepers
}

// patient waits for storage with each call of what it returns, as storage.Watch.Wait does.
func (p *process) patient(ctx context.Context) func(func() error) error {
	return func(do func() error) error { return p.storage.Wait(ctx, do) }
}

// patientHere is patient for what another node could do.
func (p *process) patientHere(ctx context.Context) func(func() error) error {
	return func(do func() error) error { return p.storage.WaitHere(ctx, do) }
}

// record reads the record of a job.
func (p *process) record(ctx context.Context, job string) (store.Record, error) {
	return result(p.patient(ctx), func() (store.Record, error) { return p.cfg.Store.Get(ctx, job) })
}

// nameOf is the name of the node at an address; the address where it has left.
func (p *process) nameOf(address string) string {
	if address == "" {
		return p.cfg.Node
	}
	for _, m := range p.transport.others() {
		if m.Peer == address {
			return m.Node
		}
	}
	return address
}

// published is how a node was when it last said so. The node writes it, and any
// goroutine may read it.
type published struct {
	engines atomic.Pointer[[]EngineStatus]
	state   atomic.Pointer[nodes.State] // what the other nodes are told
	storage atomic.Pointer[StorageStatus]
	crowd   atomic.Pointer[crowd]
}

func newPublished() *published {
	p := &published{}
	p.engines.Store(&[]EngineStatus{})
	p.state.Store(&nodes.State{})
	p.storage.Store(&StorageStatus{})
	return p
}

// StorageStatus is what a node last saw of where records and objects are kept.
type StorageStatus struct {
	// Held is why the node removes no data: *deployment.DifferError,
	// *deployment.FormatError or *retention.SkewError; nil where it may.
	Held error
	// Unknown are the jobs in the bucket that no record knows, on the node
	// that removes data.
	Unknown retention.Unknown
	// Skew is how far this node's clock is ahead of the store's.
	Skew time.Duration
}

// trace is a job as it is traced; nil where it is not.
func (c Config) trace(rec *store.Record) *tracing.Job { return c.Tracer.Job(rec.Job.ID, rec.Trace) }

// told has the trace of a job that is over tell of the job itself. Whoever records the
// end calls it; of a job that nobody ever owned who cleans up after it.
func (p *process) told(rec *store.Record) {
	trace, job := p.cfg.trace(rec), &rec.Job
	if trace == nil || job.Completed == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("rowmill.job", job.ID), slog.String("rowmill.account", rec.Spec.Account), slog.String("rowmill.status", string(job.Status)),
		slog.String("gen_ai.request.model", rec.Spec.Model.ID), slog.Int("rowmill.priority", int(job.Priority)), slog.Int64("rowmill.owners", rec.Epoch),
		slog.Int64("rowmill.rows", job.RowsDone), slog.Int64("rowmill.rows.failed", job.FailedRows),
	}
	for name, tokens := range map[string]*int64{"gen_ai.usage.input_tokens": job.InputTokens, "gen_ai.usage.output_tokens": job.OutputTokens} {
		if tokens != nil {
			attrs = append(attrs, slog.Int64(name, *tokens))
		}
	}
	var failure string
	if job.Status == rowmill.StatusFailed && job.FailureReason != nil {
		failure = job.FailureReason.Code
	}
	trace.End(job.Created, *job.Completed, failure, attrs...)
}

// downloadsAt reports whether the node at an address is downloading the input of
// a job. Nobody who can answer is not; an error says that it is not known.
func (p *process) downloadsAt(ctx context.Context, address, job string) (bool, error) {
	if p.transport.peers == nil || address == "" || address == p.address {
		return p.downloads.Running(job), nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	running, err := p.transport.isDownloading(ctx, address, job)
	if errors.Is(err, peer.ErrRefused) {
		return false, nil
	}
	return running, err
}
