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
	cmap "github.com/orcaman/concurrent-map"

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
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// The actor library keeps its actors in 1,024 maps, each with SHARD_COUNT parts. One
// part is enough: the default of 32 takes 2.7 MB for each System, and a fifth of the
// time of e2e/virtual.
func init() { cmap.SHARD_COUNT = 1 }

// A System is the running pipeline of one node.
type System struct {
	*deps
	actors *actor.ActorSystem
	node   *actor.PID
	root   *node              // the node actor's struct; used only after the actor has stopped
	life   context.Context    // ends when the System stops
	end    context.CancelFunc // ends life
	lease  atomic.Pointer[lease]

	drainAsked  chan struct{} // closed when this node must drain
	askOnce     sync.Once
	draining    atomic.Bool
	drained     chan struct{} // closed when the drain is complete
	drainedOnce sync.Once
	stopOnce    sync.Once
	stopErr     error
}

// New returns a System for a valid configuration; nothing runs before Start.
func New(cfg Config) (*System, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	all, m := &sync.WaitGroup{}, newMetrics(cfg.Registerer, registry.New(cfg.Clock))
	watch := storage.NewMonitor(storage.Config{
		Store: cfg.Store, Bucket: cfg.Blob, Node: cfg.Node, Patience: cfg.StoragePatience,
		Clock: cfg.Clock, Logger: cfg.Logger, Registerer: cfg.Registerer, Met: registry.NoteTrouble,
	})
	cfg.Store, cfg.Blob = watch.Store(), watch.Bucket()
	s := &System{drained: make(chan struct{}), drainAsked: make(chan struct{}), deps: &deps{
		cfg: cfg, metrics: m, log: cfg.Logger, budget: work.NewMemoryBudget(cfg.MemoryBudget, cfg.Ownership.Weights), slots: newTaskSlots(cfg.Inputs.Readers),
		published: newPublishedState(), storage: watch, compactions: commit.NewCompactionRunner(all), counters: prompt.NewCounterFactory(cfg.Tokenizers, m.onCountError, cfg.Logger),
		transport: &peerTransport{peers: cfg.Peers}, all: all,
	}}
	s.life, s.end = context.WithCancel(context.Background())
	s.downloads = ingest.NewDownloads(ingest.DownloadsConfig{All: all, Wanted: s.isDownloadWanted, Ended: func(job string, lost bool, err error) {
		s.actors.Root.Send(s.node, downloadEnded{job, lost, err})
	}})
	return s, nil
}

// Start opens the node's session and starts the pipeline. When it returns, the search
// for jobs has started, but engines may still be down.
func (s *System) Start(ctx context.Context) error {
	l, err := openLease(ctx, s.cfg.Store, s.cfg.Node, s.cfg.Ownership.LeaseTTL)
	if err != nil {
		return err
	}
	s.address = s.transport.ownAddress()
	s.actors = actor.NewActorSystem(
		// The library logs nothing; onEvent logs its events.
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		// The library's throttle of dead letters keeps a goroutine for this long.
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
	s.actors.EventStream.Subscribe(s.onEvent)
	s.lease.Store(l)
	s.node, err = s.actors.Root.SpawnNamed(s.metrics.props(registry.ActorIdentity{Kind: "node"}, func(entry *registry.ActorEntry) actor.Actor {
		tasks := newTaskGroup(context.Background(), s.all, entry)
		tasks.panicked = s.onPanic // a panic here would stop the whole node
		s.root = newNode(s.deps, s, l, tasks, entry.Log(s.log))
		return s.root
	}), "node")
	if err != nil {
		return fmt.Errorf("spawn node: %w", err)
	}
	s.maintainLease(l) // after the spawn, because maintainLease sends messages to the node
	s.all.Add(1)
	go s.forwardChanges()
	return nil
}

// maintainLease renews a lease in the background, and sends the node actor a message when the
// lease ends.
func (s *System) maintainLease(l *lease) {
	s.all.Add(2)
	go func() {
		defer s.all.Done()
		l.renewUntilEnd(s.cfg.Store, s.cfg.Ownership.LeaseTTL, s.log, s.metrics.renewals, s.life.Done())
	}()
	go func() {
		defer s.all.Done()
		l.cancelAtDeadline(s.life.Done())
		if l.ctx.Err() != nil {
			s.actors.Root.Send(s.node, leaseChanged{l, true})
		}
	}()
}

// reopenSession opens a new session in the background after a session was lost, and retries
// until it succeeds.
func (s *System) reopenSession() {
	s.all.Go(func() {
		_ = retry.Sessions.Do(s.life, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Ownership.LeaseTTL)
			defer cancel()
			l, err := openLease(ctx, s.cfg.Store, s.cfg.Node, s.cfg.Ownership.LeaseTTL)
			if err == nil {
				s.lease.Store(l)
				s.actors.Root.Send(s.node, leaseChanged{lease: l})
				s.maintainLease(l)
			}
			return err
		}, func(error) bool { return true }, func(err error) {
			if !storage.IsTransient(err) { // else storage has logged it once already
				s.log.Warn("opening a session in the store failed; trying again", "err", err)
			}
		})
	})
}

// StorageMonitor returns the node's storage.Monitor, which knows whether records and
// objects are available. It learns this from calls through its Store and its Bucket.
func (s *System) StorageMonitor() *storage.Monitor { return s.storage }

// WaitReason returns a text for the client about why a job waits, if the job's record
// cannot show the reason: records cannot be written, or no node owns the job. Otherwise
// it returns an empty text.
func (s *System) WaitReason(job *rowmill.Job, account string) string {
	if waiting := s.storage.OutageMessage(); waiting != "" || job.Status != rowmill.StatusPending {
		return waiting
	}
	return s.published.placeWaits.Load().message(s.cfg.Node, account)
}

// NotifySubmitted tells the node about a new job in the store, so that the node need not wait
// for its next scan.
func (s *System) NotifySubmitted(rec store.Record) {
	o := store.OrphanJob{JobID: rec.Job.ID, Account: rec.Spec.Account, Priority: rec.Job.Priority}
	s.actors.Root.Send(s.node, nodeRequest{body: hintOf(o)})
}

// NotifyCancelled tells the node that a client has cancelled a job, so that the owner stops
// the job at once. Otherwise the owner would notice the cancellation only at its next
// write.
func (s *System) NotifyCancelled(jobID string) {
	s.actors.Root.Send(s.node, nodeRequest{body: &hint{Job: jobID, Cancelled: true}})
}

// NotifyRescheduled tells the node that a client has changed the schedule of a job, so that the
// owner gives the job back soon. If the job has no owner, a node claims it soon.
func (s *System) NotifyRescheduled(rec store.Record) {
	s.actors.Root.Send(s.node, nodeRequest{body: &hint{Job: rec.Job.ID, Rescheduled: true}})
	if !rec.Job.Paused {
		s.NotifySubmitted(rec)
	}
}

// LocateRow asks the owner of a job where a row is; row is the number of the row in the
// input. It returns rowmill.ErrNotFound if this node does not own the job, or the input
// is not read yet.
func (s *System) LocateRow(ctx context.Context, job string, row int64) (assign.RowLocation, error) {
	place, err := ask[assign.RowLocation](ctx, nodeService{s}, jobQuestion{job, (*node).ownerOf, getRow{job, row}})
	return place, notFoundIfUnknown(err)
}

// Attach takes an inference server into use, like the servers in Config.Engines. The
// System closes the engine after Detach or Stop. It ignores an engine whose name is in
// use, and does not close that engine. Call Attach after Start.
func (s *System) Attach(e engine.Engine) { s.actors.Root.Send(s.node, attachEngine{e}) }

// Detach takes an inference server out of use. Rows in flight on the server finish;
// rows that wait for the server go to other engines. An unknown name is ignored. Call
// Detach after Start.
func (s *System) Detach(name string) { s.actors.Root.Send(s.node, detachEngine{name}) }

// SetStoppedServers sets the servers that this node can start, and that do not run now. Jobs
// of their models wait for them, without the limit of ServerConfig.Wait.
func (s *System) SetStoppedServers(list []nodes.Engine) {
	s.actors.Root.Send(s.node, stoppedServers{list})
}

// Engines returns the state of the node's inference servers.
func (s *System) Engines() []EngineStatus { return *s.published.engines.Load() }

// Draining reports whether the node drains: it finishes its work and takes no more.
func (s *System) Draining() bool { return s.draining.Load() }

// Drain lets rows in flight finish, commits them, gives all jobs back and then returns.
// If ctx ends first, it returns an error.
func (s *System) Drain(ctx context.Context) error {
	s.draining.Store(true)
	s.actors.Root.Send(s.node, nodeRequest{body: drain{}})
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		s.logUnfinishedWork()
		return fmt.Errorf("drain: %w", context.Cause(ctx))
	}
}

// maxUnfinished is the number of lines that a failed drain logs.
const maxUnfinished = 20

// logUnfinishedWork logs the jobs and tasks that a drain has not finished.
func (s *System) logUnfinishedWork() {
	logged := 0
	for _, a := range s.metrics.registry.List(registry.Filter{}).Actors {
		if a.State != registry.Running || a.Kind != "job" && a.Tasks == 0 || a.Kind == "engine" || logged == maxUnfinished {
			continue
		}
		logged++
		s.log.Warn("the drain has not finished this work", "actor", a.Kind, "job", a.Job, "task", a.Task, "task_time", a.TaskTime)
	}
}

// Stop drains for at most Config.DrainTimeout, or until ctx ends. Then it stops all
// actors and tasks, and returns. If the drain was not complete in this time, Stop
// returns an error, and other nodes resume the jobs from their parts. A second call
// returns the first result.
func (s *System) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

// closeTimeout limits the time to give back jobs and to close the session. Without the
// close, the session would expire later.
const closeTimeout = 2 * time.Second

func (s *System) shutdown(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	err := s.Drain(drain)
	cancel()
	s.end()
	err = errors.Join(err, s.actors.Root.StopFuture(s.node).Wait())
	s.lease.Load().cancel(context.Canceled)
	s.downloads.Stop()
	s.compactions.Stop()
	s.all.Wait()
	l := s.lease.Load() // a new session may have been opened meanwhile
	l.cancel(context.Canceled)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(closeTimeout, s.cfg.Ownership.LeaseTTL))
	defer cancel()
	s.root.jobs.claims.releaseOwned(closing, s.cfg.Store, s.log)
	if cerr := s.cfg.Store.CloseSession(closing, l.session); cerr != nil {
		err = errors.Join(err, fmt.Errorf("close session: %w", cerr))
	}
	s.actors.Shutdown()
	return err
}

// onEvent counts and logs events of the actor library: messages to stopped actors, and
// panics.
func (s *System) onEvent(event any) {
	switch e := event.(type) {
	case *actor.DeadLetterEvent:
		s.metrics.dead.Inc()
		s.log.Debug("an actor that had stopped got a message", "actor", e.PID.GetId(), "message", typeName(e.Message))
	case *actor.SupervisorEvent:
		s.metrics.restarted.WithLabelValues(kindOf(e.Child.GetId())).Inc()
		s.metrics.registry.MarkPanicked(e.Child.GetId(), "panic: "+fmt.Sprint(e.Reason))
		s.log.Error("actor panicked and was stopped", "actor", e.Child.GetId(), "reason", fmt.Sprint(e.Reason), "stack", stackOf(e.Reason))
	}
}

// onPanic logs a panic of a task of the node actor.
func (s *System) onPanic(caught *panics.Panic) {
	s.log.Error("a task of the node actor panicked", "reason", fmt.Sprint(caught.Reason), "stack", string(caught.Stack))
}

// TokenCountAccuracy reports whether this node counts the prompt tokens of a model exactly, and
// by how many tokens its recent counts differ on average from the counts of servers. ok
// is false before the first comparison.
func (s *System) TokenCountAccuracy(m rowmill.Model) (exact bool, meanError float64, ok bool) {
	return s.counters.CountQuality(m)
}

// Nodes returns the states of all nodes of the cluster; a single node returns only
// itself.
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
			said, _ = nodes.DecodeState(m)
		}
		out = append(out, nodes.StatusOf(m, said))
	}
	return out
}

// DrainNode makes a node, by its id or name, drain and leave the cluster. The error
// comes from nodes.Find or from the request.
func (s *System) DrainNode(ctx context.Context, id string) error {
	n, err := nodes.Find(s.Nodes(), id)
	switch {
	case err != nil:
		return err
	case n.Self:
		s.requestDrain()
		return nil
	}
	return s.transport.drain(ctx, n.Peer)
}

// DrainRequested returns a channel that is closed when a client, at this node or another,
// has asked this node to drain.
func (s *System) DrainRequested() <-chan struct{} { return s.drainAsked }

// markDrained makes Drain return, because the draining node has finished its work.
func (s *System) markDrained() { s.drainedOnce.Do(func() { close(s.drained) }) }

func (s *System) requestDrain() { s.askOnce.Do(func() { close(s.drainAsked) }) }

// lookPause times the number of members is the pause between two reads of the members.
// A read costs about a microsecond for each member, so reads take at most a hundredth
// of a core. With three nodes the pause is negligible; with a thousand nodes it is a
// tenth of a second.
const lookPause = 100 * time.Microsecond

// forwardChanges tells the node actor about changes of members and of storage. All
// changes of members during a read and the following pause become one message: when a
// job starts on a thousand nodes, each of them sends a new state.
func (s *System) forwardChanges() {
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

// isDownloadWanted reports whether a job may still use the input that this node is
// downloading: the job has not ended, and no node has finished or taken over the
// download. It returns true if the record cannot be read.
func (s *System) isDownloadWanted(ctx context.Context, job string) bool {
	rec, err := s.cfg.Store.Get(ctx, job)
	if err != nil {
		return true
	}
	others := rec.Downloader != "" && rec.Downloader != s.transport.ownAddress()
	return !rec.Job.Status.IsTerminal() && rec.DownloadFinished == nil && !others
}

// StorageStatus returns the result of the node's last check of storage. The node checks every
// Janitor.Interval.
func (s *System) StorageStatus() StorageStatus { return *s.published.storage.Load() }
