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
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/tracing"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// Config holds the parts and settings of a System. The zero value of every limit
// means its default.
type Config struct {
	Node       string // name of this node in records and logs; default "node"
	Store      store.Store
	Blob       blob.Bucket
	Engines    []engine.Engine // the inference servers of this node
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Tracer     *tracing.Tracer // nil: no job is traced

	// Peers are the other nodes; nil on a single node.
	Peers Peers
	// Version is the version of this program that other nodes see.
	Version string
	// Clock gives the times in records. Default: time.Now. Leases and waits use the
	// monotonic clock.
	Clock func() time.Time

	// Ended is called at least once for each job that is over, by this node or
	// another. After an error it is called again, and the job's data stays until a
	// call succeeds. Default: nothing is called.
	Ended func(ctx context.Context, rec *store.Record) error

	// Tokenizers returns the tokenizer of a model. With the vocabulary of another
	// model, or without one (t is nil), token counts are estimates, which are corrected
	// by the counts that servers report. warning then says how to get exact counts.
	// Default: no vocabularies.
	Tokenizers func(rowmill.Model) (t prompt.Tokenizer, warning string, err error)

	// StoragePatience has two uses. Jobs and rows move to another node if, for this
	// long, that node could use the bucket and this node could not. And an error of
	// storage that may be permanent is retried for this long. The node waits for
	// an unavailable storage without a limit. Default 1 min: enough for a restart
	// of the storage.
	StoragePatience time.Duration

	// MemoryBudget bounds the bytes of rows in memory on this node, of all jobs
	// together: loaded inputs and finished outputs. Default 64 MiB. A job always
	// gets at least one block of rows.
	MemoryBudget int64

	// DrainTimeout is how long Stop waits for rows in flight. Default 30 s.
	DrainTimeout time.Duration

	Reports   ReportConfig
	Inputs    InputConfig
	Ownership OwnershipConfig
	Shards    ShardConfig
	Parts     PartConfig
	Rows      RowConfig
	Estimates EstimateConfig
	Servers   ServerConfig
	Janitor   JanitorConfig
}

// ReportConfig holds the functions that describe this node to operators and to other nodes.
type ReportConfig struct {
	// Facts returns this node's facts for operators, as a value for JSON. Operators get
	// the facts of all nodes from any node. Default: an empty object.
	Facts func(ctx context.Context) any

	// FactsTimeout is how long a node may take for Facts. Default 8 s: enough to
	// try the storage and the other nodes.
	FactsTimeout time.Duration

	// Figures returns this node's figures for the API of other nodes, as a value for
	// JSON. what names the kind of figures. Default: a function that refuses every
	// kind.
	Figures func(ctx context.Context, what string) (any, error)
}

// InputConfig configures how the node reads the inputs of jobs, and how long the inputs are
// kept.
type InputConfig struct {
	Downloader *input.Downloader // fetches URL inputs
	Limits     input.Limits      // limits of the size of an input
	Sources    *sources.Sources  // places with files that jobs read and write; nil for none

	// Readers is how many inputs this node reads at the same time. Beside these inputs,
	// it reads half as many for accounts that have no other input being read. Default
	// 4: each reader may hold the longest record and row of Limits several times.
	Readers int

	// Retention is how long the input of a job is kept after its end if rows are
	// left to run. Zero removes it at the end.
	Retention time.Duration
}

// OwnershipConfig configures how many jobs a node owns, and how leases and claims work.
type OwnershipConfig struct {
	// OwnsNone keeps the node from owning jobs. It still runs rows of other nodes' jobs.
	OwnsNone bool

	// LeaseTTL is how long the node owns its jobs after its last renewal. Default 6
	// s: long enough for a slow disk, short enough that another node takes over
	// before workers wait for an owner. A worker starts no more rows after about twice
	// Parts.Interval without a commit.
	LeaseTTL time.Duration

	// AdoptionTimeout has two uses. After the loss of a job's owner, a node keeps
	// the job's rows for this long. The next owner waits this long for a silent
	// node that was downloading the input. Default 30 s: several times the time
	// until the next owner claims the job.
	AdoptionTimeout time.Duration

	// ParkTime is how long no node runs a job that may crash its owners. Default 1 h:
	// the job seldom disturbs other jobs, and starts again without help.
	ParkTime time.Duration

	// Settle is how long a job's data stays after its end: longer than the recovery
	// of a store that loses its last writes in a crash. Zero is for a store that
	// loses nothing.
	Settle time.Duration

	// ScanInterval is the time between searches for jobs without an owner. Default
	// 500 ms, and in clusters of more than 250 nodes up to four times as long. New
	// jobs on this node do not wait for the next search.
	ScanInterval time.Duration

	// MaxActive bounds the jobs that this node owns at the same time; other jobs stay
	// pending. The same number bounds the jobs of other nodes for which this node runs
	// rows. Default 64: more jobs would only share the same engines. Accounts share
	// the places by Weights; an account that Weights does not name has weight 1.
	MaxActive int
	Weights   fair.Weights

	// KeptPlaces are places for jobs beyond MaxActive, at most one for each account;
	// half are for priority 0 only. Because of these places, jobs that run for days do
	// not keep other accounts from starting. Default 16: more accounts seldom come at
	// the same time, and the places take a quarter of the memory of the others.
	KeptPlaces int
}

// ShardConfig limits the size of a shard, which is a range of input rows. Defaults 16,384
// rows and 8 MiB: the shard and its answers usually fit one part, which then needs no
// merge.
type ShardConfig struct {
	Rows  int
	Bytes int64 // size before compression

	// Remembered is how many different rows are remembered to find equal rows, if a job
	// runs equal rows only once. Default 2 Mi, about 95 MB while the input is read.
	Remembered int
}

// PartConfig bounds the finished rows that a crash can lose. A worker writes a part when its
// finished rows (inputs, outputs and bookkeeping) reach half of Bytes, or after
// Interval. Meanwhile the worker gathers rows for the next part. If the next part must
// be written before the first part is committed, no more rows start. Defaults 48 MiB
// and 5 s: half of 48 MiB holds the finished rows of the three shards that are open at
// the same time.
type PartConfig struct {
	Bytes    int64
	Interval time.Duration

	// Joined is the target size for joined parts, for a bucket that copies a range from
	// object to object only if the range is long. While a job runs, the complete parts
	// of consecutive shards are joined, so that the bucket can copy the result from
	// them. The target is an eighth of the remaining bytes, at most Joined and at least
	// an eighth of Joined. Default 512 MiB: the result needs few requests, and a join
	// that still runs at the last row takes a second or two.
	Joined int64
}

// RowConfig limits the attempts, the failures and the timeouts of rows.
type RowConfig struct {
	// MaxAttempts is how often a row is sent before it counts as failed. Default 5.
	MaxAttempts int

	// MaxFailed is how many failed rows a job may have before it fails. Zero means
	// 1 row or 5 % of the rows, the larger of both.
	MaxFailed int64

	// Patience is the shortest timeout for an answer, once the speed of the server is
	// known. After the timeout the request counts as hung, and the row is sent again. A
	// slow server gets more time. Default 60 s: far above the usual time, and a
	// hung request does not block a job for long.
	Patience time.Duration
}

// EstimateConfig configures the sample that an estimate job runs.
type EstimateConfig struct {
	// Rows is the maximum number of rows. Default 100: usually the bounds of the cost are then
	// 10 % apart from the estimate or less.
	Rows int

	// Tokens is about the maximum number of input tokens. Default 1,000,000. Long rows lower
	// the number of rows, to 20 at least.
	Tokens int64

	// Wait is how long an estimate waits for an engine. After that time no row runs. Default
	// 10 s: after the start of a node, its servers are known.
	Wait time.Duration
}

// ServerConfig configures how the node watches inference servers.
type ServerConfig struct {
	// Wait is how long a new job waits for an engine that serves its model. Default
	// 30 min: the time to load a big model.
	Wait time.Duration

	// ProbeInterval is the time between checks of the models of a server. Default 5 s.
	ProbeInterval time.Duration

	// Pace returns the limit of requests for the engine with this name. Default: no
	// limit.
	Pace func(name string) engine.RateLimit

	// Known reports whether this node knows the capabilities of a served model. If
	// neither Known nor the server reports them, a trial row finds them out. Default:
	// all are known.
	Known func(engine.ServedModel) bool

	// Warm prepares data that the first job on a served model would wait for, such
	// as its vocabulary. It may take long. Default: nothing.
	Warm func([]engine.ServedModel)

	// MaxTrialModels is the largest number of models of a server that get trial rows. Default 8:
	// a server with more models is a gateway, where each row may cost money, or a
	// server that loads a model for each row. A negative value means none.
	MaxTrialModels int
}

// JanitorConfig configures the removal of expired data.
type JanitorConfig struct {
	// Confirm returns an error if the node must remove nothing from Store and Blob,
	// such as a *deployment.MismatchError. Default: no check, as only this process
	// uses both.
	Confirm func(ctx context.Context) error

	// Interval is the time between searches for expired data. Default 1 min,
	// because retention counts in days.
	Interval time.Duration

	// Batch is how many jobs one search handles. Default 100: a few seconds of work, so
	// that a node can stop within seconds.
	Batch int

	// OrphanAge is how old objects without a record must be before the janitor treats
	// them as remains of a crash. Default 24 h: longer than any upload or merge.
	OrphanAge time.Duration

	// ScrubRate is how many bytes per second the janitor reads of the results and parts
	// of ended jobs, to find damaged objects. Default 0: none, because a bucket may
	// charge for reads.
	ScrubRate int64

	// ClockTolerance is the largest allowed difference between the clocks of the node
	// and the store. With a larger difference the node removes nothing. Default 2 min:
	// far more than the error of clocks with NTP, and far less than a day.
	ClockTolerance time.Duration

	// CatchUp is how many times faster than real time the date of retention may move.
	// The date follows the clock, but after an outage or a clock jump it catches up
	// only at this speed. Default 24, a day in an hour: operators notice a wrong clock
	// long before it removes data, and after a week without service retention is up to
	// date again within hours.
	CatchUp int
}

// WithDefaults sets each zero field to its default.
func (c Config) WithDefaults() Config {
	setDefault(&c.Node, "node")
	setDefault(&c.Ownership.LeaseTTL, 6*time.Second)
	setDefault(&c.Ownership.AdoptionTimeout, 30*time.Second)
	setDefault(&c.Ownership.ParkTime, time.Hour)
	setDefault(&c.StoragePatience, time.Minute)
	setDefault(&c.Ownership.ScanInterval, 500*time.Millisecond)
	setDefault(&c.Ownership.MaxActive, 64)
	setDefault(&c.Ownership.KeptPlaces, 16)
	setDefault(&c.Shards.Rows, 16_384)
	setDefault(&c.Shards.Bytes, 8<<20)
	setDefault(&c.Shards.Remembered, 2<<20)
	setDefault(&c.Parts.Bytes, 48<<20)
	setDefault(&c.Parts.Interval, 5*time.Second)
	setDefault(&c.Parts.Joined, 512<<20)
	setDefault(&c.MemoryBudget, 64<<20)
	setDefault(&c.Reports.FactsTimeout, 8*time.Second)
	setDefault(&c.Inputs.Readers, 4)
	setDefault(&c.Rows.MaxAttempts, 5)
	setDefault(&c.Rows.Patience, time.Minute)
	setDefault(&c.Estimates.Rows, 100)
	setDefault(&c.Estimates.Tokens, 1_000_000)
	setDefault(&c.Estimates.Wait, 10*time.Second)
	setDefault(&c.Servers.Wait, 30*time.Minute)
	setDefault(&c.Servers.ProbeInterval, 5*time.Second)
	setDefault(&c.Servers.MaxTrialModels, 8)
	setDefault(&c.Janitor.Interval, time.Minute)
	setDefault(&c.Janitor.Batch, 100)
	setDefault(&c.Janitor.OrphanAge, 24*time.Hour)
	setDefault(&c.Janitor.ClockTolerance, 2*time.Minute)
	setDefault(&c.Janitor.CatchUp, 24)
	setDefault(&c.DrainTimeout, 30*time.Second)
	setDefault(&c.Logger, slog.New(slog.DiscardHandler))
	if c.Tokenizers == nil {
		c.Tokenizers = func(rowmill.Model) (prompt.Tokenizer, string, error) { return nil, "", nil }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Servers.Pace == nil {
		c.Servers.Pace = func(string) engine.RateLimit { return engine.RateLimit{} }
	}
	if c.Reports.Figures == nil {
		c.Reports.Figures = func(_ context.Context, what string) (any, error) {
			return nil, refuse(peer.CodeUnknownKind, "unknown kind of figures: %q", what)
		}
	}
	if c.Reports.Facts == nil {
		c.Reports.Facts = func(context.Context) any { return struct{}{} }
	}
	if c.Janitor.Confirm == nil {
		c.Janitor.Confirm = func(context.Context) error { return nil }
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// setDefault sets a zero field to a value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error for the first invalid field.
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
	case c.Rows.MaxAttempts < 1:
		return errors.New("actors: Rows.MaxAttempts must be positive")
	case c.Janitor.Batch < 1:
		return errors.New("actors: Janitor.Batch must be positive")
	case c.Janitor.ClockTolerance < 0 || c.Janitor.CatchUp < 1:
		return errors.New("actors: Janitor.ClockTolerance must not be negative, and CatchUp at least 1")
	case c.Ownership.LeaseTTL < time.Second:
		return errors.New("actors: Ownership.LeaseTTL must be at least 1s")
	}
	return nil
}

// joinSizes returns the bounds for the sizes of joined parts in this bucket; zero if the
// bucket needs no long parts.
func (c Config) joinSizes() commit.JoinSizes {
	least := c.Blob.MinStorageCopySize()
	if least == 0 {
		return commit.JoinSizes{}
	}
	return commit.JoinSizes{Least: 2 * least, Most: c.Parts.Joined}
}

// slotConfig configures the places for jobs on this node. Patience is the time within which
// a waiting account asks again: with each scan (every ScanInterval, in large clusters
// up to scanStretch times as long), or with each invite, about once per heartbeat.
func (c Config) slotConfig() fair.Config {
	return fair.Config{
		Places: c.Ownership.MaxActive, Kept: c.Ownership.KeptPlaces, Weights: c.Ownership.Weights,
		Patience: 2*heartbeatInterval + c.Ownership.ScanInterval,
	}
}

// ingest returns the configuration for the package that reads inputs.
func (c Config) ingest() ingest.Config {
	return ingest.Config{
		Jobs: c.Store, Parts: c.Store, Confirm: c.Store.ConfirmPrimary, Bucket: c.Blob, Downloader: c.Inputs.Downloader, Limits: c.Inputs.Limits, Sources: c.Inputs.Sources, Clock: c.Clock,
		Silence: c.Ownership.AdoptionTimeout, ShardRows: c.Shards.Rows, ShardBytes: c.Shards.Bytes, DedupRows: c.Shards.Remembered,
		SampleRows: c.Estimates.Rows, SampleTokens: c.Estimates.Tokens,
	}
}

// allowedFailures returns how many of the job's rows may fail before the job fails. In
// a batch of raw requests all rows may fail, since a refusal is an answer.
func (c Config) allowedFailures(spec *rowmill.Spec, rows int64) int64 {
	if spec.Raw != nil {
		return commit.SurvivesAll
	}
	if c.Rows.MaxFailed > 0 {
		return c.Rows.MaxFailed
	}
	return max(1, rows/20)
}
