package actors

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rowmill/rowmill/actors/dispatch"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/internal/tracing"
)

// metrics holds the Prometheus metrics of the pipeline. No label names a job or an
// account.
type metrics struct {
	rows       *prometheus.CounterVec  // committed rows, by model and outcome
	unassigned *prometheus.GaugeVec    // rows without a worker, by model
	tokens     *prometheus.CounterVec  // tokens of committed rows, by model and direction
	jobs       *prometheus.CounterVec  // ended jobs, by status
	active     prometheus.Gauge        // jobs that this node owns now
	parts      prometheus.Counter      // parts committed to the store
	merges     prometheus.Histogram    // seconds to merge or join parts
	finalise   prometheus.Histogram    // seconds from the last row to the result
	memory     prometheus.Gauge        // bytes of rows in memory
	kinds      map[string]*kindMetrics // by kind of actor
	registry   *registry.Registry

	ownershipMetrics
	countErrors *prometheus.GaugeVec   // mean error of token counts, by model
	dead        prometheus.Counter     // messages to actors that had stopped
	restarted   *prometheus.CounterVec // actors that panicked, by kind of actor
	engines     engineVecs
	retention   retentionMetrics
}

// ownershipMetrics holds the metrics of workers, of this node's session, and of jobs
// and rows that move to another owner or worker.
type ownershipMetrics struct {
	workers   prometheus.Gauge       // jobs with a worker on this node
	stalled   prometheus.Gauge       // workers that start no more rows
	shut      prometheus.Gauge       // accounts with waiting jobs and without a place on this node
	renewals  *prometheus.CounterVec // renewals of the session, by outcome
	takeovers prometheus.Counter     // jobs claimed after an earlier owner
	parked    prometheus.Counter     // jobs that this node has parked
	fenced    prometheus.Counter     // times that this node lost its session or a job
	handed    prometheus.Counter     // jobs given back because only other nodes can use the bucket
	lost      prometheus.Counter     // done rows of parts that cannot be read
	returned  *prometheus.CounterVec // rows taken from a worker, by reason
}

// engineVecs holds the metrics of the engines, each with the label engine.
type engineVecs struct {
	inFlight *prometheus.GaugeVec     // rows that the engine has now
	seconds  *prometheus.HistogramVec // time of a request
	retries  *prometheus.CounterVec   // rows sent again
	up       *prometheus.GaugeVec     // 1 while the engine answers probes
	opened   *prometheus.CounterVec   // pauses in which a route gets no rows
	window   *prometheus.GaugeVec     // limit of rows in flight
	waiting  *prometheus.GaugeVec     // rows in the server's queue
}

// retentionMetrics holds the metrics of the removal of expired data.
type retentionMetrics struct {
	held         *prometheus.GaugeVec // 1 while no data is removed, by reason
	skew         prometheus.Gauge     // seconds that this node's clock is ahead of the store's
	unknownJobs  prometheus.Gauge     // jobs with objects but without a record
	unknownBytes prometheus.Gauge     // bytes of the objects of these jobs
	damaged      prometheus.Gauge     // records and objects that cannot be read
}

// engineMetrics holds the metrics of one engine, a part of engineVecs.
type engineMetrics struct {
	dispatch.Metrics
	up      prometheus.Gauge
	opened  prometheus.Counter
	window  prometheus.Gauge
	waiting prometheus.Gauge
}

// kindMetrics holds the metrics of all actors of one kind.
type kindMetrics struct {
	live     prometheus.Gauge    // actors that run now
	messages atomic.Uint64       // handled messages
	latency  prometheus.Observer // seconds to handle a message
}

// Reasons why a node removes no data, as label values.
const (
	heldDeployment = "deployment"
	heldClock      = "clock"
)

// latencySample makes an actor measure the time of one message in latencySample,
// because measuring each message would cost as much as handling it.
const latencySample = 16

// actorKinds lists all kinds of actors, as label values.
var actorKinds = []string{"node", "engine", "job", "worker", "results"}

func (m *metrics) onCountError(model string, mean float64) {
	m.countErrors.WithLabelValues(model).Set(mean)
}

// observeMerge adds the duration of a merge, since the time began, to the metrics.
func (m *metrics) observeMerge(span *tracing.Span, began time.Time) {
	span.Observe(m.merges, time.Since(began).Seconds())
}

func newMetrics(reg prometheus.Registerer, registry *registry.Registry) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		rows:        f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_rows_total", Help: "Rows committed, by outcome (done or failed)."}, []string{"model", "outcome"}),
		unassigned:  f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_rows_waiting", Help: "Rows of jobs of this node without a worker yet, because no node has room or no server serves the model."}, []string{"model"}),
		tokens:      f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_tokens_total", Help: "Tokens of committed rows."}, []string{"model", "direction"}),
		jobs:        f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_jobs_total", Help: "Jobs that ended on this node."}, []string{"status"}),
		active:      f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_jobs_active", Help: "Jobs that this node owns now."}),
		parts:       f.NewCounter(prometheus.CounterOpts{Name: "rowmill_parts_recorded_total", Help: "Parts committed to the store."}),
		merges:      f.NewHistogram(prometheus.HistogramOpts{Name: "rowmill_merge_seconds", Help: "Time to merge the parts of a shard, or to join the complete parts of consecutive shards.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
		finalise:    f.NewHistogram(prometheus.HistogramOpts{Name: "rowmill_finalise_seconds", Help: "Time from the last row to a readable artifact.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}),
		memory:      f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_rows_memory_bytes", Help: "Bytes of rows in memory, which jobs.memory_budget limits."}),
		countErrors: f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_token_count_error_tokens", Help: "Recent average difference between our token count of a prompt and the server's."}, []string{"model"}),

		ownershipMetrics: newOwnershipMetrics(f),

		engines:   newEngineVecs(f),
		retention: newRetentionMetrics(f),
		kinds:     make(map[string]*kindMetrics),
		registry:  registry,
		dead:      f.NewCounter(prometheus.CounterOpts{Name: "rowmill_actor_dead_letters_total", Help: "Messages to actors that had stopped."}),
	}
	live := f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_actors_live", Help: "Actors alive, by kind of actor."}, []string{"kind"})
	latency := f.NewHistogramVec(prometheus.HistogramOpts{Name: "rowmill_actor_receive_seconds", Help: "Time that an actor takes for a message, measured for every 16th message.", Buckets: prometheus.ExponentialBuckets(1e-6, 4, 10)}, []string{"kind"})
	m.restarted = f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_actor_restarts_total", Help: "Actors that panicked. After a panic of a job or worker the job fails; the actor of an engine restarts."}, []string{"kind"})
	for _, kind := range actorKinds {
		k := &kindMetrics{live: live.WithLabelValues(kind), latency: latency.WithLabelValues(kind)}
		m.kinds[kind] = k
		m.restarted.WithLabelValues(kind)
		label := prometheus.Labels{"kind": kind}
		f.NewCounterFunc(prometheus.CounterOpts{Name: "rowmill_actor_messages_total", Help: "Messages that actors have handled, by kind of actor.", ConstLabels: label}, func() float64 { return float64(k.messages.Load()) })
	}
	reg.MustRegister(actorMetrics{registry})
	return m
}

func newOwnershipMetrics(f promauto.Factory) ownershipMetrics {
	m := ownershipMetrics{
		workers:   f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_workers", Help: "Jobs with a worker on this node, owned by this node or another."}),
		shut:      f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_accounts_without_place", Help: "Accounts with waiting jobs and without a place on this node."}),
		stalled:   f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_workers_stalled", Help: "Workers that start no more rows, because finished rows cannot be committed."}),
		renewals:  f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_lease_renewals_total", Help: "Renewals of this node's session, by outcome (renewed, failed, lost)."}, []string{"outcome"}),
		parked:    f.NewCounter(prometheus.CounterOpts{Name: "rowmill_jobs_parked_total", Help: "Jobs this node parked, because the processes of their last owners ended before the jobs made progress."}),
		takeovers: f.NewCounter(prometheus.CounterOpts{Name: "rowmill_takeovers_total", Help: "Jobs that this node continued after another owner, or after its own restart."}),
		fenced:    f.NewCounter(prometheus.CounterOpts{Name: "rowmill_fenced_total", Help: "Times this node stopped its jobs because its session had expired, or stopped a job because the store refused a write."}),
		handed:    f.NewCounter(prometheus.CounterOpts{Name: "rowmill_storage_handovers_total", Help: "Jobs this node gave back because it could not use the bucket and other nodes could."}),
		lost:      f.NewCounter(prometheus.CounterOpts{Name: "rowmill_rows_lost_total", Help: "Done rows of parts that cannot be read; these rows run again."}),
		returned:  f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_rows_returned_total", Help: "Rows taken from a worker: given back before they were sent (back), or assigned again because the worker was lost (lost)."}, []string{"reason"}),
	}
	for _, outcome := range []string{"renewed", "failed", "lost"} {
		m.renewals.WithLabelValues(outcome)
	}
	for _, reason := range []string{"back", "lost"} {
		m.returned.WithLabelValues(reason)
	}
	return m
}

func newEngineVecs(f promauto.Factory) engineVecs {
	return engineVecs{
		inFlight: f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_engine_rows_inflight", Help: "Rows that an engine has now."}, []string{"engine"}),
		seconds:  f.NewHistogramVec(prometheus.HistogramOpts{Name: "rowmill_engine_request_seconds", Help: "Time an engine takes for a request.", Buckets: prometheus.ExponentialBuckets(0.0005, 3, 12)}, []string{"engine"}),
		retries:  f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_row_retries_total", Help: "Rows sent again after an answer that was not accepted."}, []string{"engine"}),
		up:       f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_engine_up", Help: "1 while an engine answers its probes."}, []string{"engine"}),
		window:   f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_engine_window_rows", Help: "Rows an engine may have in flight."}, []string{"engine"}),
		waiting:  f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_engine_rows_waiting", Help: "Rows in a server's own queue, from its gauges."}, []string{"engine"}),
		opened:   f.NewCounterVec(prometheus.CounterOpts{Name: "rowmill_engine_breaker_opened_total", Help: "Times that an engine began to get no rows of a model for a while, because these rows failed one after the other or the server asked for a pause."}, []string{"engine"}),
	}
}

func newRetentionMetrics(f promauto.Factory) retentionMetrics {
	m := retentionMetrics{
		held:         f.NewGaugeVec(prometheus.GaugeOpts{Name: "rowmill_retention_held", Help: "1 while this node removes no data, by reason: records and bucket do not belong together (deployment), or its clock differs from the store's (clock)."}, []string{"reason"}),
		skew:         f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_clock_skew_seconds", Help: "How far this node's clock is ahead of the store's."}),
		unknownJobs:  f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_storage_unknown_jobs", Help: "Jobs with objects in the bucket but without a record, on the node that removes data; 0 on other nodes."}),
		unknownBytes: f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_storage_unknown_bytes", Help: "Bytes of the objects of the jobs that rowmill_storage_unknown_jobs counts."}),
		damaged:      f.NewGauge(prometheus.GaugeOpts{Name: "rowmill_storage_damaged", Help: "Records of jobs, and with retention.scrub_rate also results and parts, that could not be read in the last search through the bucket."}),
	}
	for _, reason := range []string{heldDeployment, heldClock} {
		m.held.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) engine(name string) *engineMetrics {
	return &engineMetrics{
		Metrics: dispatch.Metrics{
			InFlight: m.engines.inFlight.WithLabelValues(name),
			Seconds:  m.engines.seconds.WithLabelValues(name),
			Retries:  m.engines.retries.WithLabelValues(name),
		},
		up:      m.engines.up.WithLabelValues(name),
		opened:  m.engines.opened.WithLabelValues(name),
		window:  m.engines.window.WithLabelValues(name),
		waiting: m.engines.waiting.WithLabelValues(name),
	}
}

// props returns the properties of an actor, with metrics and an entry in the
// registry. The actor's task groups and logger use the entry.
func (m *metrics) props(identity registry.ActorIdentity, make func(*registry.ActorEntry) actor.Actor) *actor.Props {
	k, entry := m.kinds[identity.Kind], m.registry.NewEntry(identity)
	return actor.PropsFromProducer(func() actor.Actor { return make(entry) },
		actor.WithMailbox(actor.Unbounded(entry)),
		actor.WithReceiverMiddleware(k.middleware(entry), unwrapDelayed),
		actor.WithSupervisor(stopOnPanic()),
	)
}

// stopOnPanic returns the strategy that stops a child actor after a panic. The child's
// state and the message are lost, so a restart would only hide the loss. The parent
// watches the child and fails the job, whose committed parts stay.
func stopOnPanic() actor.SupervisorStrategy {
	return actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
}

func (k *kindMetrics) middleware(entry *registry.ActorEntry) actor.ReceiverMiddleware {
	return func(next actor.ReceiverFunc) actor.ReceiverFunc {
		return func(c actor.ReceiverContext, e *actor.MessageEnvelope) {
			switch e.Message.(type) {
			case *actor.Started:
				k.live.Inc()
				entry.MarkStarted(c.Self().GetId())
			case *actor.Stopped:
				k.live.Dec()
				entry.MarkStopped()
			}
			if k.messages.Add(1)%latencySample != 0 {
				next(c, e)
				return
			}
			began := time.Now()
			next(c, e)
			k.latency.Observe(time.Since(began).Seconds())
		}
	}
}

// actorMetrics collects metrics from the registry at each scrape. No label names a job.
type actorMetrics struct{ *registry.Registry }

var (
	depthDesc  = prometheus.NewDesc("rowmill_actor_mailbox_depth", "Messages waiting in mailboxes, by kind of actor.", []string{"kind"}, nil)
	oldestDesc = prometheus.NewDesc("rowmill_actor_oldest_message_seconds", "How long the oldest message in a mailbox has waited at least, by kind of actor.", []string{"kind"}, nil)
	taskDesc   = prometheus.NewDesc("rowmill_actor_task_seconds", "Age of the oldest running task of actors, by kind of actor and name of the task (task).", []string{"kind", "task"}, nil)
)

// Describe sends the descriptions of the metrics that Collect may send.
func (actorMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{depthDesc, oldestDesc, taskDesc} {
		out <- desc
	}
}

// Collect sends the current values from the registry of actors.
func (m actorMetrics) Collect(out chan<- prometheus.Metric) {
	figures := m.TotalsByKind()
	for _, kind := range actorKinds {
		f := figures[kind]
		out <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(f.Depth), kind)
		out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, f.Oldest.Seconds(), kind)
		for name, took := range f.Tasks {
			out <- prometheus.MustNewConstMetric(taskDesc, prometheus.GaugeValue, took.Seconds(), kind, name)
		}
	}
}

// kindOf returns the kind of an actor from its id, a path like node/job-…/results.
func kindOf(id string) string {
	last := id[strings.LastIndexByte(id, '/')+1:]
	kind, _, _ := strings.Cut(last, "-")
	kind, _, _ = strings.Cut(kind, "$")
	if slices.Contains(actorKinds, kind) {
		return kind
	}
	return "other"
}
