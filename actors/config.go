package actors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/fair"
	"github.com/rowmill/rowmill/actors/ingest"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Config is what a System needs. The zero value of every limit means its
// default.
type Config struct {
	Node       string // name of this node in records and logs; default "node"
	Store      store.Store
	Blob       blob.Bucket
	Engines    []engine.Engine // the inference servers of this node
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *tracing.Tracer // nil: no job is traced

	// Peers are the other nodes; nil on a node that stands alone.
	Peers Peers
	// Version is what this node says of its program to the others.
	Version string
	// Clock is read for the times in records. Default: time.Now. Leases and
	// all waiting go by the monotonic clock, whatever this one says.
	Clock func() time.Time

	// Ended is told of each job that is over, at least once, by this node or
	// another: until it returns nil the job is told of again, and its data stays.
	// Default: nobody is.
	Ended func(ctx context.Context, rec *store.Record) error

	// Facts is what this node tells operators of itself, as JSON, by whichever node
	// they ask. Default: nothing.
	Facts func(ctx context.Context) any

	// FactsTimeout is how long a node may take for Facts. Default 8 s: it tries its
	// storage and the other nodes.
	FactsTimeout time.Duration

	// Figures are what this node tells the API of others about itself, as JSON: "what"
	// names which. Default: none.
	Figures func(ctx context.Context, what string) (any, error)

	// Tokenizers finds the vocabulary of a model. Where another one stands in,
	// or none (nil), counts are estimates, corrected by what servers report,
	// and the warning says what would make them exact. Default: no
	// vocabularies.
	Tokenizers func(rowmill.Model) (t prompt.Tokenizer, warning string, err error)

	// StoragePatience is how long another node must have been able to use the
	// bucket that this one cannot before jobs and rows go there, and how long an
	// error of storage is tried again that is not known to pass. Storage that is
	// away is waited for however long it takes. Default 1 min: enough for one that
	// restarts.
	StoragePatience time.Duration

	// MemoryBudget bounds the bytes of rows in memory on this node, all jobs
	// together: loaded inputs and finished outputs. Default 64 MiB. A job
	// always gets at least one block of rows.
	MemoryBudget int64

	// DrainTimeout is how long Stop lets rows in flight finish. Default 30 s.
	DrainTimeout time.Duration

	Inputs    Inputs
	Ownership Ownership
	Shards    Shards
	Parts     Parts
	Rows      Rows
	Estimates Estimates
	Servers   Servers
	Janitor   Janitor
}

// Inputs is how the inputs of jobs are read, and for how long they are kept.
type Inputs struct {
	Downloader *input.Downloader // fetches URL inputs
	Limits     input.Limits      // bounds on what an input may hold

	// Readers is how many inputs this node reads at a time, and half as many more
	// of accounts of which it reads none. Default 4: each may hold the longest
	// record and row of Limits, several times over.
	Readers int

	// Retention is how long the input of a job is kept after its end, where
	// rows of it are left to run. Zero is not at all.
	Retention time.Duration
}

// Ownership is which jobs a node owns, and for how long.
type Ownership struct {
	// OwnsNone keeps the node from owning jobs; it runs rows of those of
	// others.
	OwnsNone bool

	// LeaseTTL is how long the node owns its jobs after its last renewal.
	// Default 6 s: long enough to sit out a slow disk, short enough that
	// another node takes over before workers wait for it, which they do two
	// Parts.Intervals after the last commit.
	LeaseTTL time.Duration

	// AdoptionTimeout is how long a node goes on with rows of a job whose owner
	// is gone before it lets go of them, and for how long the next owner waits for
	// a silent node that was downloading the input. Default 30 s: several times
	// what the next owner takes to appear.
	AdoptionTimeout time.Duration

	// Settle is how long what a job needed stays after its end: longer than a
	// store that forgets its last writes takes to be back. Zero is for one that
	// forgets nothing.
	Settle time.Duration

	// ScanInterval is the time between searches for jobs without an owner.
	// Default 500 ms, and in clusters of more than 250 nodes up to four times as
	// long. New jobs on this node do not wait for it.
	ScanInterval time.Duration

	// MaxActive bounds the jobs this node runs at once; the others stay
	// pending. It also bounds the jobs of other nodes that it runs rows of.
	// Default 64: beyond it jobs only share the engines more thinly. Accounts
	// share it by Weights, 1 for one that is not named.
	MaxActive int
	Weights   fair.Weights

	// KeptPlaces are for jobs beyond MaxActive, one for an account, half of them
	// for priority 0 alone: jobs that run for days do not keep those of others
	// from beginning. Default 16: as many accounts as are likely to come at once,
	// in a quarter of the memory that the others take.
	KeptPlaces int
}

// Shards bounds a shard of the input. Defaults 16,384 rows and 8 MiB: with its
// answers a shard usually fits one part, which then needs no merging.
type Shards struct {
	Rows  int
	Bytes int64 // before they are compressed

	// Remembered is how many different rows of a job are remembered that wants equal
	// ones to run once. Default 2 Mi, about 95 MB while the input is read.
	Remembered int
}

// Parts bounds what a crash can have run again beside the rows in flight. A part
// is cut at half of Bytes of finished rows, inputs, outputs and what keeps them,
// or when it has gathered for an Interval. The next one gathers meanwhile, and
// once that should be cut too and the first is not committed yet, no further
// rows begin. Defaults 48 MiB, whose half holds what gathers of the three shards
// that are open at a time, and 5 s.
type Parts struct {
	Bytes    int64
	Interval time.Duration

	// Joined is the size at which, where the bucket copies only long ranges by
	// itself, the complete parts of shards in a row are put together while a job runs,
	// so that its result is copied from them: an eighth of what is left, but at most
	// so much and at least an eighth of it. Default 512 MiB: few requests for the
	// result, and what is being put together when the last row comes takes a second
	// or two.
	Joined int64
}

// Rows is what a row may cost.
type Rows struct {
	// MaxAttempts is how often a row is sent before it counts as failed.
	// Default 5.
	MaxAttempts int

	// MaxFailed is how many failed rows a job survives. Zero means the larger of
	// 1 row and 5 % of the rows.
	MaxFailed int64

	// Patience is the least time an answer is waited for before its request is
	// taken for hung and sent again, once it is known how fast the server is; a
	// server that is known to be slow gets more. Default 60 s: far above the
	// usual, and no job stands still for long.
	Patience time.Duration

	// EmbeddingGroup is how many texts go into one embedding request.
	// Default 32.
	EmbeddingGroup int
}

// Estimates is when an estimate of priority 1 is made by a sample: from
// Threshold tokens of input on, by the first rows, which hold Sample of them.
// Defaults 1,000,000 each, as the interface says.
type Estimates struct {
	Threshold int64
	Sample    int64
}

// Servers is how inference servers are watched.
type Servers struct {
	// Wait is how long a job waits in starting for an engine that serves its
	// model. Default 30 min: as long as loading a big model takes.
	Wait time.Duration

	// ProbeInterval is the time between looks at what a server serves.
	// Default 5 s. GaugeInterval is the time between readings of its load
	// while it works. Default 1 s.
	ProbeInterval time.Duration
	GaugeInterval time.Duration

	// Pace is the most that the engine of a name is sent. Default: no limit.
	Pace func(name string) engine.Pace

	// Known says of which served models it is known what they do; of the others a
	// row has to show it where their server does not say. Default: of all.
	Known func(engine.ServedModel) bool

	// Warm gets ready what the first job on a served model would wait for, such as
	// its vocabulary. It may take its time. Default: nothing is.
	Warm func([]engine.ServedModel)

	// Asked bounds the models of one server that rows are sent to for that.
	// Default 8: more are those of a gateway, where a row of each may cost, or of
	// a server that loads each for its row. Less than 0 is none.
	Asked int
}

// Janitor is how data goes that is not kept longer.
type Janitor struct {
	// Confirm says with an error why nothing may be removed from Store and Blob,
	// such as a *deployment.DifferError. Default: both are this process's alone.
	Confirm func(ctx context.Context) error

	// Interval is the time between searches for data to remove. Default 1 min:
	// retention is counted in days. Batch is how many jobs one search looks at.
	// Default 100: a few seconds of quiet work, and no more than that runs into
	// a node that stops. OrphanAge is how old objects must be that no record
	// names before they count as left over from a crash. Default 24 h: longer
	// than any upload or merge takes.
	Interval  time.Duration
	Batch     int
	OrphanAge time.Duration

	// ClockTolerance is how far the node's clock may be from the store's before
	// it removes nothing. Default 2 min: far more than clocks differ by that are
	// set by NTP, and far less than a day.
	ClockTolerance time.Duration

	// CatchUp is how much faster than time the days of retention may pass where
	// the clock is ahead of them, because the service stood still or the clock
	// has jumped. Default 24, a day an hour: a wrong clock is noticed long before
	// it costs anything, and after a quiet week retention is late by a morning.
	CatchUp int
}

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	def(&c.Node, "node")
	def(&c.Ownership.LeaseTTL, 6*time.Second)
	def(&c.Ownership.AdoptionTimeout, 30*time.Second)
	def(&c.StoragePatience, time.Minute)
	def(&c.Ownership.ScanInterval, 500*time.Millisecond)
	def(&c.Ownership.MaxActive, 64)
	def(&c.Ownership.KeptPlaces, 16)
	def(&c.Shards.Rows, 16_384)
	def(&c.Shards.Bytes, 8<<20)
	def(&c.Shards.Remembered, 2<<20)
	def(&c.Parts.Bytes, 48<<20)
	def(&c.Parts.Interval, 5*time.Second)
	def(&c.Parts.Joined, 512<<20)
	def(&c.MemoryBudget, 64<<20)
	def(&c.Inputs.Readers, 4)
	def(&c.Rows.MaxAttempts, 5)
	def(&c.Rows.Patience, time.Minute)
	def(&c.Rows.EmbeddingGroup, 32)
	def(&c.Estimates.Threshold, 1_000_000)
	def(&c.Estimates.Sample, 1_000_000)
	def(&c.Servers.Wait, 30*time.Minute)
	def(&c.Servers.ProbeInterval, 5*time.Second)
	def(&c.Servers.Asked, 8)
	def(&c.Servers.GaugeInterval, time.Second)
	def(&c.Janitor.Interval, time.Minute)
	def(&c.Janitor.Batch, 100)
	def(&c.Janitor.OrphanAge, 24*time.Hour)
	def(&c.Janitor.ClockTolerance, 2*time.Minute)
	def(&c.Janitor.CatchUp, 24)
	def(&c.DrainTimeout, 30*time.Second)
	if c.Tokenizers == nil {
		c.Tokenizers = func(rowmill.Model) (prompt.Tokenizer, string, error) { return nil, "", nil }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Servers.Pace == nil {
		c.Servers.Pace = func(string) engine.Pace { return engine.Pace{} }
	}
	if c.Figures == nil {
		c.Figures = func(_ context.Context, what string) (any, error) {
			return nil, refuse(peer.CodeUnknownKind, "no figures %q here", what)
		}
	}
	if c.FactsTimeout == 0 {
		c.FactsTimeout = 8 * time.Second
	}
	if c.Facts == nil {
		c.Facts = func(context.Context) any { return struct{}{} }
	}
	if c.Janitor.Confirm == nil {
		c.Janitor.Confirm = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate names the first field that cannot work.
func (c Config) Validate() error {
	switch {
	case c.Store == nil:
		return errors.New("actors: Store is missing")
	case c.Blob == nil:
		return errors.New("actors: Blob is missing")
	case c.Inputs.Downloader == nil:
		return errors.New("actors: Inputs.Downloader is missing")
	case c.Ownership.MaxActive < 1, c.Ownership.KeptPlaces < 1, c.Shards.Rows < 1, c.Shards.Bytes < 1, c.Shards.Remembered < 1, c.Parts.Bytes < 1, c.Parts.Joined < 1, c.MemoryBudget < 1, c.Inputs.Readers < 1:
		return errors.New("actors: Ownership.MaxActive, Ownership.KeptPlaces, Shards, Parts.Bytes, Parts.Joined, MemoryBudget and Inputs.Readers must be positive")
	case c.Rows.MaxAttempts < 1 || c.Rows.EmbeddingGroup < 1:
		return errors.New("actors: Rows.MaxAttempts and Rows.EmbeddingGroup must be positive")
	case c.Janitor.Batch < 1:
		return errors.New("actors: Janitor.Batch must be positive")
	case c.Janitor.ClockTolerance < 0 || c.Janitor.CatchUp < 1:
		return errors.New("actors: Janitor.ClockTolerance must not be negative, and CatchUp at least 1")
	case c.Ownership.LeaseTTL < time.Second:
		return errors.New("actors: Ownership.LeaseTTL must be at least 1s")
	}
	return nil
}

// pieces say when complete parts are put together for this bucket.
func (c Config) pieces() commit.PieceSizes {
	least := c.Blob.AppendsFrom()
	if least == 0 {
		return commit.PieceSizes{}
	}
	return commit.PieceSizes{Least: 2 * least, Most: c.Parts.Joined}
}

// places are those for jobs on this node. Who waits for one asks every
// ScanInterval, up to scanStretch times as long, or with every heartbeat.
func (c Config) places() fair.Config {
	return fair.Config{
		Places: c.Ownership.MaxActive, Kept: c.Ownership.KeptPlaces, Weights: c.Ownership.Weights,
		Patience: 2*heartbeatInterval + c.Ownership.ScanInterval,
	}
}

// ingest is what the jobs' inputs are read with.
func (c Config) ingest() ingest.Config {
	return ingest.Config{
		Jobs: c.Store, Parts: c.Store, Bucket: c.Blob, Downloader: c.Inputs.Downloader, Limits: c.Inputs.Limits, Clock: c.Clock,
		Silence: c.Ownership.AdoptionTimeout, ShardRows: c.Shards.Rows, ShardBytes: c.Shards.Bytes, DedupRows: c.Shards.Remembered,
		SampleFrom: c.Estimates.Threshold, SampleTokens: c.Estimates.Sample,
	}
}

// survives is how many failed rows a job of so many rows may have: a batch of
// requests all of them, since a refusal is an answer.
func (c Config) survives(spec *rowmill.Spec, rows int64) int64 {
	if spec.Raw != nil {
		return commit.SurvivesAll
	}
	if c.Rows.MaxFailed > 0 {
		return c.Rows.MaxFailed
	}
	return max(1, rows/20)
}
