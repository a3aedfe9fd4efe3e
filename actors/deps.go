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

// deps holds the objects that the System and all actors of a node share.
type deps struct {
	cfg         Config
	metrics     *metrics
	log         *slog.Logger
	budget      *work.MemoryBudget
	slots       taskSlots
	published   *publishedState
	storage     *storage.Monitor
	downloads   *ingest.Downloads
	compactions *commit.CompactionRunner // compactions that this node runs for owners on other nodes
	counters    *prompt.CounterFactory
	transport   *peerTransport
	address     string          // address at which other nodes reach this node; empty on a single node
	all         *sync.WaitGroup // all tasks and goroutines that must end before System.Stop returns
}

// storageRetrier returns a function that calls its argument, and repeats the call while
// storage is unavailable (see storage.Monitor.Wait).
func (p *deps) storageRetrier(ctx context.Context) func(func() error) error {
	return func(do func() error) error { return p.storage.Retry(ctx, do) }
}

// localStorageRetrier retries for work that another node could do: the function returns
// storage.ErrElsewhere if the work should move to another node.
func (p *deps) localStorageRetrier(ctx context.Context) func(func() error) error {
	return func(do func() error) error { return p.storage.RetryUnlessElsewhere(ctx, do) }
}

// readRecord reads the record of a job.
func (p *deps) readRecord(ctx context.Context, job string) (store.Record, error) {
	return runWithResult(p.storageRetrier(ctx), func() (store.Record, error) { return p.cfg.Store.Get(ctx, job) })
}

// nameOf returns the name of the node at an address, or the address if the node has
// left the cluster.
func (p *deps) nameOf(address string) string {
	if address == "" {
		return p.cfg.Node
	}
	for _, m := range p.transport.otherMembers() {
		if m.Peer == address {
			return m.Node
		}
	}
	return address
}

// publishedState is the last state that the node actor has published for other goroutines,
// which may read the state at any time.
type publishedState struct {
	engines    atomic.Pointer[[]EngineStatus]
	state      atomic.Pointer[nodes.State] // the state that is sent to the other nodes
	storage    atomic.Pointer[StorageStatus]
	placeWaits atomic.Pointer[slotWaits]
}

func newPublishedState() *publishedState {
	p := &publishedState{}
	p.engines.Store(&[]EngineStatus{})
	p.state.Store(&nodes.State{})
	p.storage.Store(&StorageStatus{})
	return p
}

// StorageStatus is the result of the node's last check of records and objects.
type StorageStatus struct {
	// Held is the reason why the node removes no data: *deployment.MismatchError,
	// *deployment.NewerFormatError or *retention.SkewError; nil if the node may remove
	// data.
	Held error
	// Findings are the results of the last search through the bucket. They are empty on
	// nodes that do not remove data.
	Findings retention.SweepFindings
	// Skew is how far this node's clock is ahead of the store's.
	Skew time.Duration
}

// trace returns the trace of a job; nil if the job is not traced.
func (c Config) trace(rec *store.Record) *tracing.JobTrace {
	return c.Tracer.TraceJob(rec.Job.ID, rec.Trace)
}

// endTrace ends the trace of a finished job and adds attributes of the job. The code
// that records the end of a job calls endTrace; for a job that never had an owner, the
// cleanup does.
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

// isDownloadingAt reports whether the node at an address is downloading the input of a job.
// It returns false for a node that refuses connections. An error means that the answer
// is unknown.
func (p *deps) isDownloadingAt(ctx context.Context, address, job string) (bool, error) {
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
