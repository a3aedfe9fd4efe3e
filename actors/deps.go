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

// deps holds the parts that the System and the actors of a node share.
type deps struct {
	cfg         Config
	metrics     *metrics
	log         *slog.Logger
	budget      *work.Budget
	slots       slots
	published   *published
	storage     *storage.Watch
	downloads   *ingest.Downloads
	compactions *commit.Compactions // compactions that this node runs for owners on other nodes
	counters    *prompt.Counters
	transport   *transport
	address     string          // address at which other nodes reach this node; empty on a single node
	all         *sync.WaitGroup // all tasks, and the goroutines that renew the lease
}

// patient returns a function that calls its argument and waits while storage is
// unavailable, as storage.Watch.Wait does.
func (p *deps) patient(ctx context.Context) func(func() error) error {
	return func(do func() error) error { return p.storage.Wait(ctx, do) }
}

// patientHere is like patient, but for work that another node could do instead: it
// returns storage.ErrElsewhere if the work should move there.
func (p *deps) patientHere(ctx context.Context) func(func() error) error {
	return func(do func() error) error { return p.storage.WaitHere(ctx, do) }
}

// record reads the record of a job.
func (p *deps) record(ctx context.Context, job string) (store.Record, error) {
	return result(p.patient(ctx), func() (store.Record, error) { return p.cfg.Store.Get(ctx, job) })
}

// nameOf returns the name of the node at an address; the address if the node has
// left.
func (p *deps) nameOf(address string) string {
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

// published is the last state that the node has published. The node writes it, and
// any goroutine may read it.
type published struct {
	engines    atomic.Pointer[[]EngineStatus]
	state      atomic.Pointer[nodes.State] // sent to the other nodes
	storage    atomic.Pointer[StorageStatus]
	placeWaits atomic.Pointer[placeWaits]
}

func newPublished() *published {
	p := &published{}
	p.engines.Store(&[]EngineStatus{})
	p.state.Store(&nodes.State{})
	p.storage.Store(&StorageStatus{})
	return p
}

// StorageStatus is the state of records and objects when the node last checked them.
type StorageStatus struct {
	// Held is the reason why the node removes no data: *deployment.DifferError,
	// *deployment.FormatError or *retention.SkewError; nil if the node may remove
	// data.
	Held error
	// Findings come from the last pass over the bucket. Only the node that removes
	// data has them.
	Findings retention.Findings
	// Skew is how far this node's clock is ahead of the store's.
	Skew time.Duration
}

// trace returns the trace of a job; nil if the job is not traced.
func (c Config) trace(rec *store.Record) *tracing.Job { return c.Tracer.Job(rec.Job.ID, rec.Trace) }

// endTrace ends the trace of a finished job and adds attributes of the job. The
// code that records the end calls endTrace. For a job that never had an owner, the
// cleanup calls endTrace.
func (p *deps) endTrace(rec *store.Record) {
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

// downloadsAt reports whether the node at an address is downloading the input of a
// job. A node that refuses connections is not; an error means unknown.
func (p *deps) downloadsAt(ctx context.Context, address, job string) (bool, error) {
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
