package settings

import (
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Inputs limits the inputs of jobs.
type Inputs struct {
	// AllowPrivateNetworks permits URLs of private networks, but never of a cloud's
	// metadata service. Default: false, because clients choose the URLs and the node
	// fetches them.
	AllowPrivateNetworks bool `yaml:"allow_private_networks"`

	// AllowLoopback permits URLs of this machine, but never of this service itself.
	// Default: true only if http.listen is a loopback address, for trials. Otherwise
	// remote clients could reach, through the node, servers that they cannot reach
	// themselves.
	AllowLoopback bool `yaml:"allow_loopback"`

	// MaxBytes limits a downloaded file, also after gunzip. Default: 10 GiB.
	MaxBytes Bytes `yaml:"max_bytes" default:"10GiB" min:"1"`

	// MaxRows limits the rows of a job, independent of its quota. Default: 100,000,000,
	// the largest size that the tests of the pipeline plan for.
	MaxRows int64 `yaml:"max_rows" default:"100000000" min:"1"`

	// MaxRowBytes limits the text of a row. Default: 8 MiB; every buffer that holds a
	// row may need this much memory.
	MaxRowBytes Bytes `yaml:"max_row_bytes" default:"8MiB" min:"1"`

	// Readers is how many inputs are parsed and counted at once. Half as many more are
	// kept for accounts without an input in progress. Default: 4, enough to keep some
	// processors busy. Each reader may hold a record of four times MaxRowBytes and a
	// few rows.
	Readers int `yaml:"readers" default:"4" min:"1"`

	// ConnectTimeout limits the dial of a download. Default: 10s.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"10s" min:"1ms"`

	// StallTimeout ends a download that receives no byte for this long. Default: 60s,
	// longer than any healthy server pauses.
	StallTimeout time.Duration `yaml:"stall_timeout" default:"1m" min:"1ms"`

	// TotalTimeout limits a whole download. Default: 6h, 10 GiB at 0.5 MB/s.
	TotalTimeout time.Duration `yaml:"total_timeout" default:"6h" min:"1ms"`
}

// Jobs says how the node runs jobs.
type Jobs struct {
	// MaxActive is how many jobs run at once; other jobs stay pending. Default: 64,
	// enough to fill any server, and few enough to keep in memory.
	MaxActive int `yaml:"max_active" default:"64" min:"1"`

	// KeptPlaces is how many jobs may run beyond MaxActive, for accounts that find all
	// other places taken: at most one for each account, for a job of priority 0 or if the
	// account has no running job. Half of these places are only for priority 0. Default:
	// 16, as many accounts as are likely to arrive while other accounts' jobs run for
	// days.
	KeptPlaces int `yaml:"kept_places" default:"16" min:"1"`

	// Weights are the relative shares of accounts, for places of jobs and for turns at
	// the engines. Default: 1 for each.
	Weights map[string]int `yaml:"weights" min:"1"`

	// MaxFailedRows is how many rows of a job may fail before the job fails, at least
	// 1. Default: null, the larger of 1 row and 5 % of the rows.
	MaxFailedRows *int64 `yaml:"max_failed_rows"`

	// LeaseTTL is how long the node's session is valid after its last renewal.
	// Default: 6s: jobs do not change owner after one lost renewal, and do change
	// owner before workers without an owner have to wait.
	LeaseTTL time.Duration `yaml:"lease_ttl" default:"6s" min:"1s"`

	// PartBytes and PartInterval say when finished rows are flushed to a part and
	// committed. Defaults: 48 MiB of input and output, or 5s. A crash can repeat this
	// much work.
	PartBytes    Bytes         `yaml:"part_bytes" default:"48MiB" min:"1"`
	PartInterval time.Duration `yaml:"part_interval" default:"5s" min:"1ms"`

	// JoinBytes is the target size for joined parts. If the object storage copies only
	// long ranges by itself, complete neighbouring parts are joined while a job runs.
	// Default: 512 MiB, so that the result needs few requests. Near the end of the job
	// the target falls to an eighth, which is one or two seconds of work.
	JoinBytes Bytes `yaml:"join_bytes" default:"512MiB" min:"1"`

	// ShardRows and ShardBytes limit one shard of the input. Defaults: 16,384 rows or 8
	// MiB: with its answers a shard usually fits one part, which then needs no merging.
	ShardRows  int   `yaml:"shard_rows" default:"16384" min:"1"`
	ShardBytes Bytes `yaml:"shard_bytes" default:"8MiB" min:"1"`

	// Dedup runs equal rows once in jobs without dedup in their submission. Default:
	// false. DedupRows is how many different rows of such a job are remembered while
	// its input is read; rows beyond this number run without dedup. Default: 2,097,152,
	// about 95 MB.
	Dedup     bool `yaml:"dedup"`
	DedupRows int  `yaml:"dedup_rows" default:"2097152" min:"1"`

	// MemoryBudget limits the bytes of rows in memory, over all jobs. Default: 64 MiB.
	MemoryBudget Bytes `yaml:"memory_budget" default:"64MiB"`

	// MaxAttempts is how often a row is tried before it counts as failed. Default: 5.
	// Failures of a whole engine do not count.
	MaxAttempts int `yaml:"max_attempts" default:"5" min:"1"`

	// RowPatience is the shortest timeout of a request for a row. After the timeout the
	// node sends the request again. It applies once the node knows the speed of the
	// server; a slow server gets a longer timeout. Default: 60s, far above usual times,
	// but short enough that a hung request does not hold up a job for long.
	RowPatience time.Duration `yaml:"row_patience" default:"1m" min:"10ms"`

	// WaitForEngine is how long a job waits for a server of its model.
	// Default: 30m, longer than a large model takes to load.
	WaitForEngine time.Duration `yaml:"wait_for_engine" default:"30m" min:"0s"`

	// ProbeInterval is the time between two probes of a server. A probe checks that the
	// server answers, and which models it serves. Default: 5s; after failed rows the
	// node probes at once.
	ProbeInterval time.Duration `yaml:"probe_interval" default:"5s" min:"10ms"`

	// AskedModels limits to how many models of a server the node sends a short row, by
	// which it learns whether they generate, reason or embed. A model gets the row once
	// for each start of the server, if neither the server nor the catalog says it. With 0
	// no model gets it. Default: 8: a server with more models is a gateway, where each
	// row may cost money, or a server that loads each model for its row.
	AskedModels int `yaml:"asked_models" default:"8"`

	// AdoptionTimeout is how long a node continues with the rows of a job without an
	// owner before it drops them, and how long the next owner waits for a silent node
	// that was downloading the input. Default: 30s, several times as long as the next
	// owner takes to appear.
	AdoptionTimeout time.Duration `yaml:"adoption_timeout" default:"30s" min:"1s"`

	// ParkTime is how long a parked job waits. A node parks a job if two processes that
	// ran only this job have ended before the job made progress. "rowmill jobs release"
	// ends the wait. Default: 1h: the job seldom disturbs other jobs, and starts again
	// without help.
	ParkTime time.Duration `yaml:"park_time" default:"1h" min:"1s"`

	// SettleTime is how long the objects of a job stay after its end, and merged parts
	// after their merge, because Redis may lose its last writes in a crash. Default:
	// 30s, longer than the writes that Redis can lose with appendfsync everysec, and
	// longer than a restart or a failover. The embedded store loses no writes.
	SettleTime time.Duration `yaml:"settle_time" default:"30s" min:"1s"`

	// InputRetention is how long the node keeps the input of a job that failed, was
	// cancelled or has failed rows, so that it can be resumed; 0s removes it at the
	// end. Default: 168h, a week to notice the failure.
	InputRetention time.Duration `yaml:"input_retention" default:"168h" min:"0s"`

	// StoragePatience is how long another node must have been able to use the bucket,
	// while this node cannot, before jobs and rows move there. It is also how long a
	// storage error that may be permanent is retried. Default: 1m, longer than a
	// service takes to restart.
	StoragePatience time.Duration `yaml:"storage_patience" default:"1m" min:"10ms"`

	// DrainTimeout is how long rows in flight may finish at shutdown. Default: 30s, the
	// usual timeout of a supervisor.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s" min:"0s"`
}

// Retention says how a node removes expired data. Each account sets how long its data
// is kept (rowmill settings set).
type Retention struct {
	// Interval is the time between two searches for expired jobs. Default: 1m;
	// retention is counted in days.
	Interval time.Duration `yaml:"interval" default:"1m" min:"1s"`
	// Batch limits the jobs in one removal; if more have expired, the next search
	// follows soon. Default: 100, so that running jobs are hardly slowed down.
	Batch int `yaml:"batch" default:"100" min:"1"`
	// OrphanAge is the age at which the node removes objects that belong to no job,
	// because of a crash. Default: 24h, longer than any upload.
	OrphanAge time.Duration `yaml:"orphan_age" default:"24h" min:"1h"`
	// ScrubRate is how many bytes of results and parts of ended jobs the node reads in a
	// second, to find damaged ones before a client does; 0: none. Default: 0, because a
	// bucket may charge for reads.
	ScrubRate Bytes `yaml:"scrub_rate" default:"0" min:"0"`
	// ClockTolerance is the difference between this node's clock and the store's at
	// which the node stops removing data. Default: 2m, far more than the difference of
	// clocks with NTP, and far less than a day, the shortest retention.
	ClockTolerance time.Duration `yaml:"clock_tolerance" default:"2m" min:"1s"`
	// CatchUp is how many times faster than real time the date of retention may move, if
	// the clock is ahead of it after a pause of the service or a jump of the clock.
	// Default: 24, a day in an hour: an operator notices a wrong clock before data is
	// lost, and after a week without service retention is some hours late.
	CatchUp int `yaml:"catch_up" default:"24" min:"1"`
}

// Webhooks says how the node sends events about the ends of jobs. Inputs limits the
// networks to which events may go.
type Webhooks struct {
	// Retries are the pauses after each failed attempt to send an event; after the last
	// attempt the event has failed. Default: 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h,
	// as the Standard Webhooks specification suggests: over three days, so that a
	// receiver may be down over a weekend.
	Retries []time.Duration `yaml:"retries" min:"1ms"`
}

// Estimates says how costs are estimated.
type Estimates struct {
	// SamplingThreshold is the number of input tokens from which an estimate of
	// priority 1 runs a sample of its input. Default: 1,000,000: below this, the sample
	// would be the whole job.
	SamplingThreshold int64 `yaml:"sampling_threshold" default:"1000000" min:"1"`
	// SampleTokens is how many input tokens the sample has. Default: 1,000,000, as the
	// documentation of the API says.
	SampleTokens int64 `yaml:"sample_tokens" default:"1000000" min:"1"`
}

// Quota limits the jobs of a priority.
type Quota struct {
	Priority rowmill.Priority `yaml:"priority"`
	// RowQuota limits the rows of each job. Default: see Priority.DefaultQuotas.
	RowQuota *int64 `yaml:"row_quota"`
	// TokenQuota limits the input tokens of each job. Default: see
	// Priority.DefaultQuotas.
	TokenQuota *int64 `yaml:"token_quota"`
}

// defaultQuotas returns the default quotas of each priority, in order.
func defaultQuotas() (quotas []Quota) {
	for _, p := range rowmill.Priorities() {
		rows, tokens := p.DefaultQuotas()
		quotas = append(quotas, Quota{Priority: p, RowQuota: &rows, TokenQuota: &tokens})
	}
	return quotas
}

// defaultRetries are the pauses of the Standard Webhooks specification.
func defaultRetries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// checkJobs checks the settings of jobs against each other.
func (s Settings) checkJobs(check checker) {
	check(s.Jobs.MaxFailedRows == nil || *s.Jobs.MaxFailedRows >= 1, "jobs.max_failed_rows", "must be at least 1, or null for 5 %% of the rows")
	check(s.Jobs.MemoryBudget >= s.Inputs.MaxRowBytes, "jobs.memory_budget",
		"must hold at least one row of inputs.max_row_bytes (%v), is %v", s.Inputs.MaxRowBytes, s.Jobs.MemoryBudget)
	check(s.Jobs.AskedModels >= 0, "jobs.asked_models", "must not be negative, is %d; with 0 no model gets a trial row", s.Jobs.AskedModels)
	for i, q := range s.Quotas {
		key := fmt.Sprintf("quotas[%d]", i)
		check(q.RowQuota == nil || *q.RowQuota >= 0, key+".row_quota", "must not be negative")
		check(q.TokenQuota == nil || *q.TokenQuota >= 0, key+".token_quota", "must not be negative")
	}
}
