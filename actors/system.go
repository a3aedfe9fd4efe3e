package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/actors/storage"
	"github.com/rowmill/rowmill/actors/work"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A System is the running pipeline of one node.
type System struct {
	*process
	actors *actor.ActorSystem
	node   *actor.PID
	root   *node           // its actor: not to be touched while that runs
	life   context.Context // ends with Stop
	end    context.CancelFunc
	lease  atomic.Pointer[lease]

	drainAsked  chan struct{}
	askOnce     sync.Once
	draining    atomic.Bool
	drained     chan struct{}
	drainedOnce sync.Once
	stopOnce    sync.Once
	stopErr     error
}

// New prepares a System; nothing runs before Start.
func New(cfg Config) (*System, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	all, m := &sync.WaitGroup{}, newMetrics(cfg.Registerer, registry.New(cfg.Clock))
	watch := storage.NewWatch(storage.Config{
		Store: cfg.Store, Bucket: cfg.Blob, Node: cfg.Node, Patience: cfg.StoragePatience,
		Clock: cfg.Clock, Logger: cfg.Logger, Registerer: cfg.Registerer, Met: registry.Met,
	})
	cfg.Store, cfg.Blob = watch.Store(), watch.Bucket()
	s := &System{drained: make(chan struct{}), drainAsked: make(chan struct{}), process: &process{
		cfg: cfg, metrics: m, log: cfg.Logger, budget: work.NewBudget(cfg.MemoryBudget, cfg.Ownership.Weights), slots: newSlots(cfg.Inputs.Readers),
		published: newPublished(), storage: watch, errands: commit.NewErrands(all), counters: prompt.NewCounters(cfg.Tokenizers, m.onCountError, cfg.Logger),
		transport: &transport{peers: cfg.Peers}, all: all,
	}}
	s.life, s.end = context.WithCancel(context.Background())
	s.downloads = ingest.NewDownloads(ingest.DownloadsConfig{All: all, Wanted: s.wanted, Ended: func(job string, lost bool, err error) {
		s.actors.Root.Send(s.node, downloadEnded{job, lost, err})
	}})
	return s, nil
}

// Start opens the node's session and brings the pipeline up. It returns once
// jobs are being looked for; engines may still be on their way.
func (s *System) Start(ctx context.Context) error {
	l, err := openLease(ctx, s.cfg.Store, s.cfg.Node, s.cfg.Ownership.LeaseTTL)
	if err != nil {
		return err
	}
	s.address = s.transport.address()
	s.actors = actor.NewActorSystem(
		// What the library would log, onEvent does, in our words.
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		// Its throttle keeps a goroutine for as long.
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
	s.actors.EventStream.Subscribe(s.onEvent)
	s.lease.Store(l)
	s.node, err = s.actors.Root.SpawnNamed(s.metrics.props(registry.Of{Kind: "node"}, func(entry *registry.Entry) actor.Actor {
		tasks := newTaskGroup(context.Background(), s.all, entry)
		tasks.panicked = s.onPanic // nothing would be left of the node
		s.root = newNode(s.process, s, l, tasks, entry.Log(s.log))
		return s.root
	}), "node")
	if err != nil {
		return fmt.Errorf("spawn node: %w", err)
	}
	s.keep(l) // which tells the node
	s.all.Add(1)
	go s.follow()
	return nil
}

// keep renews a lease and tells the node when it ends.
func (s *System) keep(l *lease) {
	s.all.Add(2)
	go func() {
		defer s.all.Done()
		l.keep(s.cfg.Store, s.cfg.Ownership.LeaseTTL, s.log, s.metrics.renewals, s.life.Done())
	}()
	go func() {
		defer s.all.Done()
		l.watch(s.life.Done())
		if l.ctx.Err() != nil {
			s.actors.Root.Send(s.node, leaseChanged{l, true})
		}
	}()
}

// reopen opens a new session after one was lost, however long it takes.
func (s *System) reopen() {
	s.all.Add(1)
	go func() {
		defer s.all.Done()
		_ = retry.Sessions.Do(s.life, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Ownership.LeaseTTL)
			defer cancel()
			l, err := openLease(ctx, s.cfg.Store, s.cfg.Node, s.cfg.Ownership.LeaseTTL)
			if err == nil {
				s.lease.Store(l)
				s.actors.Root.Send(s.node, leaseChanged{lease: l})
				s.keep(l)
			}
			return err
		}, func(error) bool { return true }, func(err error) {
			if !storage.Passing(err) { // else the watch has said so, once
				s.log.Warn("opening a session failed, will be tried again", "err", err)
			}
		})
	}()
}

// Watch is what this node knows of records and objects. Calls by its Store and
// Bucket add to it.
func (s *System) Watch() *storage.Watch { return s.storage }

// Waiting says to a client what a job of an account waits for where its record
// cannot: because records cannot be written, or no node has the job. Else it is
// empty.
func (s *System) Waiting(job *rowmill.Job, account string) string {
	if waiting := s.storage.Waiting(); waiting != "" || job.Status != rowmill.StatusPending {
		return waiting
	}
	return s.published.crowd.Load().message(s.cfg.Node, account)
}

// Submitted hints that a job waits in the store. Without the hint the next
// scan finds it.
func (s *System) Submitted(rec store.Record) {
	o := store.Orphan{JobID: rec.Job.ID, Account: rec.Spec.Account, Priority: rec.Job.Priority}
	s.actors.Root.Send(s.node, nodeRequest{body: hintOf(o)})
}

// Cancelled hints that a job's record says cancelled. Without the hint its
// owner learns it with its next write.
func (s *System) Cancelled(jobID string) {
	s.actors.Root.Send(s.node, nodeRequest{body: &hint{Job: jobID, Cancelled: true}})
}

// Where says where a row is, by its number in the input, as the owner of its
// job knows. rowmill.ErrNotFound when that is not this node, or the input has
// not been read yet.
func (s *System) Where(ctx context.Context, job string, row int64) (assign.Place, error) {
	body, err := s.actors.Root.RequestFuture(s.node, nodeRequest{body: whereIs{job, row}}, answerTimeout).Result()
	if err != nil {
		return assign.Place{}, fmt.Errorf("ask the owner of %s: %w", job, errors.Join(err, ctx.Err()))
	}
	if p, ok := body.(assign.Place); ok {
		return p, nil
	}
	return assign.Place{}, fmt.Errorf("%w: %v", rowmill.ErrNotFound, body)
}

// Attach takes an inference server into use, as those of Config.Engines are; it
// is closed when it is detached or the System stops. An engine whose name is in
// use already is ignored and stays the caller's. Call it after Start.
func (s *System) Attach(e engine.Engine) { s.actors.Root.Send(s.node, attachEngine{e}) }

// Detach takes an inference server out of use. Rows that wait for it go
// elsewhere or wait for another, rows it works on are let finish. An unknown
// name is ignored. Call it after Start.
func (s *System) Detach(name string) { s.actors.Root.Send(s.node, detachEngine{name}) }

// Engines returns what is known of the node's inference servers.
func (s *System) Engines() []EngineStatus { return *s.published.engines.Load() }

// Draining reports whether the node takes no more work.
func (s *System) Draining() bool { return s.draining.Load() }

// Drain lets rows in flight finish, commits them and gives all jobs back. It
// returns when that is done, or with an error when ctx ends first.
func (s *System) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.actors.Root.Send(s.node, nodeRequest{body: drain{}})
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: %w", context.Cause(ctx))
	}
}

// Stop drains for at most Config.DrainTimeout, or until ctx ends, and then
// stops everything. It returns once all is really stopped; what could not be
// drained is in the error and resumes from its parts. A second call returns
// the first one's result.
func (s *System) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

// closeTimeout is how long the session may take to close: it also ends by itself.
const closeTimeout = 2 * time.Second

func (s *System) shutdown(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	err := s.Drain(drain)
	cancel()
	l := s.lease.Load()
	s.end()
	err = errors.Join(err, s.actors.Root.StopFuture(s.node).Wait())
	l.cancel(context.Canceled)
	s.downloads.Stop()
	s.errands.Stop()
	s.all.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(closeTimeout, s.cfg.Ownership.LeaseTTL))
	defer cancel()
	s.root.jobs.claims.giveBack(closing, s.cfg.Store, s.log)
	if cerr := s.cfg.Store.CloseSession(closing, l.session); cerr != nil {
		err = errors.Join(err, fmt.Errorf("close session: %w", cerr))
	}
	s.actors.Shutdown()
	return err
}

// onEvent counts what the actor system itself reports.
func (s *System) onEvent(event any) {
	switch e := event.(type) {
	case *actor.DeadLetterEvent:
		s.metrics.dead.Inc()
		s.log.Debug("message to a stopped actor", "actor", e.PID.GetId(), "message", typeName(e.Message))
	case *actor.SupervisorEvent:
		s.metrics.restarted.WithLabelValues(kindOf(e.Child.GetId())).Inc()
		s.metrics.registry.Panicked(e.Child.GetId(), "panic: "+fmt.Sprint(e.Reason))
		s.log.Error("actor panicked and was stopped", "actor", e.Child.GetId(), "reason", fmt.Sprint(e.Reason), "stack", stackOf(e.Reason))
	}
}

func (s *System) onPanic(caught *contain.Panic) {
	s.log.Error("an errand of the node panicked", "reason", fmt.Sprint(caught.Reason), "stack", string(caught.Stack))
}

// Counting says whether this node counts prompts of a model exactly, and by how
// many tokens of late they were not what servers counted; ok is false before any
// was compared.
func (s *System) Counting(m rowmill.Model) (exact bool, meanError float64, ok bool) {
	return s.counters.Quality(m)
}

// Nodes returns the nodes of the cluster, this one alone where there is none.
func (s *System) Nodes() []nodes.Status {
	own := *s.published.state.Load()
	own.Draining = s.Draining()
	if s.cfg.Peers == nil {
		self := cluster.Member{ID: s.cfg.Node, Node: s.cfg.Node, Self: true, Engines: true, Owns: !s.cfg.Ownership.OwnsNone}
		return []nodes.Status{nodes.StatusOf(self, own)}
	}
	var out []nodes.Status
	for _, m := range s.cfg.Peers.Members() {
		said := own
		if !m.Self {
			said, _ = nodes.Read(m)
		}
		out = append(out, nodes.StatusOf(m, said))
	}
	return out
}

// DrainNode makes a node drain and leave, the one that nodes.Find finds.
func (s *System) DrainNode(ctx context.Context, id string) error {
	n, err := nodes.Find(s.Nodes(), id)
	switch {
	case err != nil:
		return err
	case n.Self:
		s.askToDrain()
		return nil
	}
	return s.transport.drain(ctx, n.Peer)
}

// DrainAsked is closed once this node was told to drain, here or from another.
func (s *System) DrainAsked() <-chan struct{} { return s.drainAsked }

// nothingLeft says that the node that drains has nothing left to do.
func (s *System) nothingLeft() { s.drainedOnce.Do(func() { close(s.drained) }) }

func (s *System) askToDrain() { s.askOnce.Do(func() { close(s.drainAsked) }) }

// lookPause is how long the node leaves the members alone after a look at them, for
// each of them: looks cost in proportion to their number, about a microsecond each,
// and so take no more than a hundredth of a core. Among three nodes that is nothing,
// among a thousand a tenth of a second.
const lookPause = 100 * time.Microsecond

// follow tells the node when members come and go, and storage. What changes while
// the node still looks at the members, or pauses, it hears of at once: when a job
// begins on a thousand nodes, each of them has something new to say.
func (s *System) follow() {
	defer s.all.Done()
	var changed, members <-chan struct{}
	if s.cfg.Peers != nil {
		changed = s.cfg.Peers.Changed()
	}
	members = changed
	looked := make(chan int, 1)
	var rested <-chan time.Time
	for {
		select {
		case <-s.life.Done():
			return
		case <-members:
			members = nil
			s.actors.Root.Send(s.node, membersChanged{looked})
		case n := <-looked:
			rested = time.After(time.Duration(n) * lookPause)
		case <-rested:
			members = changed
		case <-s.storage.Changed():
			s.actors.Root.Send(s.node, storageChanged{})
		}
	}
}

// wanted reports whether a job may still come to use the input that this node
// downloads: it is not known to be over, nor to have its input from elsewhere.
func (s *System) wanted(ctx context.Context, job string) bool {
	rec, err := s.cfg.Store.Get(ctx, job)
	if err != nil {
		return true
	}
	others := rec.Downloader != "" && rec.Downloader != s.transport.address()
	return !rec.Job.Status.Terminal() && rec.DownloadFinished == nil && !others
}

// Storage returns what the node last saw of its storage, at most
// Janitor.Interval ago.
func (s *System) Storage() StorageStatus { return *s.published.storage.Load() }
