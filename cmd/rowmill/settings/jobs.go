package settings

import (
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Inputs limits the inputs of jobs.
type Inputs struct {
	// AllowPrivateNetworks permits input URLs in private networks, but never of a
	// cloud's metadata service. Default: false, because clients choose the URLs and the
	// node fetches them.
	AllowPrivateNetworks bool `yaml:"allow_private_networks"`

	// AllowLoopback permits input URLs of this machine, but never of this service
	// itself. Default: true only if http.listen is a loopback address, so that trials
	// are easy. Otherwise remote clients could reach, through the node, servers that
	// they cannot reach themselves.
	AllowLoopback bool `yaml:"allow_loopback"`

	// MaxBytes limits a downloaded file, also after gunzip. Default: 10 GiB.
	MaxBytes Bytes `yaml:"max_bytes" default:"10GiB" min:"1"`

	// MaxRows limits the rows of a job, independent of its quota. Default: 100,000,000,
	// the largest size that the tests of the pipeline plan for.
	MaxRows int64 `yaml:"max_rows" default:"100000000" min:"1"`

	// MaxRowBytes limits the text of a row. Default: 8 MiB; every buffer that holds a
	// row may need this much memory.
	MaxRowBytes Bytes `yaml:"max_row_bytes" default:"8MiB" min:"1"`

	// Readers is how many inputs the node parses and counts at the same time. Half as
	// many further inputs may be read for accounts without an input in progress.
	// Default: 4, enough to use several processors. Each reader may need memory for a
	// record of four times MaxRowBytes and a few rows.
	Readers int `yaml:"readers" default:"4" min:"1"`

	// ConnectTimeout limits the time to connect to the server of a download. Default:
	// 10s.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"10s" min:"1ms"`

	// StallTimeout ends a download that receives no byte for this long. Default: 60s,
	// longer than any healthy server pauses.
	StallTimeout time.Duration `yaml:"stall_timeout" default:"1m" min:"1ms"`

	// TotalTimeout limits the time of a whole download. Default: 6h, enough for 10 GiB
	// at 0.5 MB/s.
	TotalTimeout time.Duration `yaml:"total_timeout" default:"6h" min:"1ms"`
}

// Jobs configures how the node runs jobs.
type Jobs struct {
	// MaxActive is how many jobs this node runs at the same time; further jobs stay
	// pending. Default: 64, enough to fill any server, and few enough to keep in
	// memory.
	MaxActive int `yaml:"max_active" default:"64" min:"1"`

	// KeptPlaces is how many jobs may run in addition to MaxActive, for accounts whose
	// jobs would have to wait because MaxActive jobs already run. An account gets at
	// most one such place: for a job of priority 0, or if the account has no running
	// job. Half of the places are only for priority 0. Default: 16, as many accounts as
	// are likely to arrive while other accounts' jobs run for days.
	KeptPlaces int `yaml:"kept_places" default:"16" min:"1"`

	// Weights maps accounts to their relative shares of the places for running jobs and
	// of the capacity of engines. Default: 1 for each account.
	Weights map[string]int `yaml:"weights" min:"1"`

	// MaxFailedRows is how many rows of a job may fail before the job fails; at least
	// 1. Default: null, which means 5 % of the rows, but at least 1 row.
	MaxFailedRows *int64 `yaml:"max_failed_rows"`

	// LeaseTTL is how long this node's lease is valid after its last renewal. A node
	// owns jobs only while its lease is valid. Default: 6s. With this value jobs do not
	// change owner after one lost renewal, and do change owner before workers without
	// an owner have to wait.
	LeaseTTL time.Duration `yaml:"lease_ttl" default:"6s" min:"1s"`

	// PartBytes and PartInterval say when finished rows are written to a part and
	// committed: at this size of inputs and outputs, or after this time. Defaults: 48
	// MiB and 5s. A new worker commits rows after 1s, and later after a twentieth of its
	// own age, up to this time. After a crash, the uncommitted rows run again.
	PartBytes    Bytes         `yaml:"part_bytes" default:"48MiB" min:"1"`
	PartInterval time.Duration `yaml:"part_interval" default:"5s" min:"1ms"`

	// JoinBytes is the target size of joined parts. It is used if the object storage
	// can copy only long ranges from object to object: then complete neighbouring parts
	// are joined while a job runs. Default: 512 MiB, so that the result needs few
	// requests. Near the end of the job the target falls to an eighth, which takes one
	// or two seconds to join.
	JoinBytes Bytes `yaml:"join_bytes" default:"512MiB" min:"1"`

	// ShardRows and ShardBytes limit one shard of the input. Defaults: 16,384 rows and
	// 8 MiB. A shard of this size with its answers usually fits into one part, which
	// then needs no merge.
	ShardRows  int   `yaml:"shard_rows" default:"16384" min:"1"`
	ShardBytes Bytes `yaml:"shard_bytes" default:"8MiB" min:"1"`

	// Dedup says whether jobs whose submission does not set dedup run equal rows only
	// once. Default: false. DedupRows is how many different rows of such a job are
	// remembered while its input is read; rows beyond this number run without dedup.
	// Default: 2,097,152, about 95 MB.
	Dedup     bool `yaml:"dedup"`
	DedupRows int  `yaml:"dedup_rows" default:"2097152" min:"1"`

	// MemoryBudget limits the bytes of rows in memory, for all jobs of the node
	// together. Default: 64 MiB.
	MemoryBudget Bytes `yaml:"memory_budget" default:"64MiB"`

	// MaxAttempts is how often a row is tried before it counts as failed. Default: 5.
	// Attempts that fail because the whole engine fails do not count.
	MaxAttempts int `yaml:"max_attempts" default:"5" min:"1"`

	// RowPatience is the shortest timeout of a request for a row. After the timeout the
	// node sends the request again. The timeout applies only after the node has
	// measured the speed of the server; a slow server gets a longer timeout. Default:
	// 60s, far above usual times, but short enough that a hung request does not delay a
	// job for long.
	RowPatience time.Duration `yaml:"row_patience" default:"1m" min:"10ms"`

	// WaitForEngine is how long a job waits for a server of its model before the job
	// fails. Default: 30m, longer than a large model takes to load.
	WaitForEngine time.Duration `yaml:"wait_for_engine" default:"30m" min:"0s"`

	// ProbeInterval is the time between two probes of a server. A probe checks that the
	// server answers, and which models it serves. Default: 5s; after failed rows the
	// node probes at once.
	ProbeInterval time.Duration `yaml:"probe_interval" default:"5s" min:"10ms"`

	// AskedModels is for how many models of a server the node sends a trial row. A
	// trial row is a short row that finds out whether a model generates, reasons or
	// embeds. It is sent once for each start of the server, if neither the server nor
	// the catalog gives this information. With 0 no model gets a trial row. Default: 8:
	// a server with more models is a gateway, where each row may cost money, or a
	// server that loads each model for its row.
	AskedModels int `yaml:"asked_models" default:"8"`

	// AdoptionTimeout is how long a node continues with the rows of a job that has no
	// owner before it drops these rows. It is also how long the next owner waits for a
	// node that was downloading the input and does not answer. Default: 30s, several
	// times as long as it takes until a job has its next owner.
	AdoptionTimeout time.Duration `yaml:"adoption_timeout" default:"30s" min:"1s"`

	// ParkTime is how long a parked job waits before it runs again. A node parks a job
	// if two processes that ran only this job have ended before the job made progress.
	// "rowmill jobs release" ends the wait. Default: 1h: the job seldom disturbs other
	// jobs, and starts again without help.
	ParkTime time.Duration `yaml:"park_time" default:"1h" min:"1s"`

	// SettleTime is how long the objects of a job stay after the job has ended, and
	// parts stay after they were merged, because Redis may lose its last writes in a
	// crash. Default: 30s, longer than the time whose writes Redis can lose with
	// appendfsync everysec, and longer than a restart or a failover. The embedded store
	// loses no writes.
	SettleTime time.Duration `yaml:"settle_time" default:"30s" min:"1s"`

	// InputRetention is how long the node keeps the input of a job that failed, was
	// cancelled or has failed rows, so that it can be resumed; 0s removes it at the
	// end. Default: 168h, a week to notice the failure.
	InputRetention time.Duration `yaml:"input_retention" default:"168h" min:"0s"`

	// StoragePatience has two uses. If this node cannot use the bucket and another node
	// has been able to for this long, jobs and rows move to the other node. And a
	// storage error that may be permanent is retried for this long. Default: 1m, longer
	// than a service takes to restart.
	StoragePatience time.Duration `yaml:"storage_patience" default:"1m" min:"10ms"`

	// DrainTimeout is how long rows in flight may finish at shutdown. Default: 30s, the
	// usual timeout of a supervisor.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s" min:"0s"`
}

// Retention configures how a node removes expired data. Each account sets how long its
// data is kept (rowmill settings set).
type Retention struct {
	// Interval is the time between two searches for expired jobs. Default: 1m;
	// retention is counted in days.
	Interval time.Duration `yaml:"interval" default:"1m" min:"1s"`
	// Batch limits how many expired jobs are removed at once. If more jobs have
	// expired, the next search follows soon. Default: 100, so that running jobs are
	// hardly slowed down.
	Batch int `yaml:"batch" default:"100" min:"1"`
	// OrphanAge is the age at which the node removes objects that belong to no job
	// because a node crashed. Default: 24h, longer than any upload.
	OrphanAge time.Duration `yaml:"orphan_age" default:"24h" min:"1h"`
	// ScrubRate is how many bytes per second of the results and parts of ended jobs the
	// node reads, to find damaged objects before a client does. Default: 0, which means
	// that the node reads none, because a bucket may charge for reads.
	ScrubRate Bytes `yaml:"scrub_rate" default:"0" min:"0"`
	// ClockTolerance is the difference between the clocks of this node and of the store
	// at which the node stops removing data. Default: 2m, far more than the difference
	// of clocks with NTP, and far less than a day, the shortest retention.
	ClockTolerance time.Duration `yaml:"clock_tolerance" default:"2m" min:"1s"`
	// CatchUp is how many times faster than real time the date of retention may move.
	// This limit applies if the clock is ahead of the date, after an outage of the
	// service or a jump of the clock. Default: 24, a day in an hour. So an operator
	// notices a wrong clock before data is lost, and after a week without service
	// retention is some hours late.
	CatchUp int `yaml:"catch_up" default:"24" min:"1"`
}

// Webhooks configures how the node sends events about ended jobs. The settings of
// Inputs limit the networks to which events may go.
type Webhooks struct {
	// Retries are the pauses after failed attempts to send an event: the first pause
	// follows the first attempt, and so on. If the attempt after the last pause fails,
	// the event is not sent again. Default: 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h, as
	// the Standard Webhooks specification suggests: over three days, so that a receiver
	// may be down over a weekend.
	Retries []time.Duration `yaml:"retries" min:"1ms"`
}

// Estimates configures how the costs of jobs are estimated.
type Estimates struct {
	// SampleRows is the maximum number of rows that an estimate runs. Default: 100. Then
	// the cost is usually within 10 % of the estimate.
	SampleRows int `yaml:"sample_rows" default:"100" min:"20"`
	// SampleTokens is about the maximum number of input tokens of these rows. Default:
	// 1,000,000. An estimate runs at least 20 rows, however long they are.
	SampleTokens int64 `yaml:"sample_tokens" default:"1000000" min:"1"`
	// Wait is how long an estimate waits for a server of its model. After this time it
	// uses the input alone. Default: 10s, in which a new node finds its servers.
	Wait time.Duration `yaml:"wait_for_engine" default:"10s" min:"0s"`
}

// Quota limits the size of each job of a priority.
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

// defaultRetries returns the pauses that the Standard Webhooks specification suggests.
func defaultRetries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// checkJobs checks the settings of jobs against each other.
func (s Settings) checkJobs(check requireFunc) {
	check(s.Jobs.MaxFailedRows == nil || *s.Jobs.MaxFailedRows >= 1, "jobs.max_failed_rows", "must be at least 1, or null for 5 %% of the rows")
	check(s.Jobs.MemoryBudget >= s.Inputs.MaxRowBytes, "jobs.memory_budget",
		"must hold at least one row of inputs.max_row_bytes (%v), is %v", s.Inputs.MaxRowBytes, s.Jobs.MemoryBudget)
	check(s.Jobs.AskedModels >= 0, "jobs.asked_models", "must not be negative, is %d; with 0 no model gets a trial row", s.Jobs.AskedModels)
	for i, q := range s.Quotas {
		key := fmt.Sprintf("quotas[%d]", i)
		check(q.RowQuota == nil || *q.RowQuota >= 1, key+".row_quota", "must be at least 1")
		check(q.TokenQuota == nil || *q.TokenQuota >= 1, key+".token_quota", "must be at least 1")
	}
}
