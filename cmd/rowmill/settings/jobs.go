package settings

import (
	"fmt"
	"time"

	"github.com/rowmill/rowmill"
)

// Inputs bounds what a job may bring in.
type Inputs struct {
	// AllowPrivateNetworks permits URLs that lead into private networks, but to
	// no metadata service of a cloud. Default: false, since a URL is chosen by a
	// client and fetched by us.
	AllowPrivateNetworks bool `yaml:"allow_private_networks"`

	// AllowLoopback permits URLs that lead to this machine, but to nothing of
	// this service on it. Default: whether http.listen is a loopback address, for
	// trying things out: clients from elsewhere are to reach nothing here by the
	// node that they do not reach themselves.
	AllowLoopback bool `yaml:"allow_loopback"`

	// MaxBytes bounds a downloaded file, also after gunzip. Default: 10 GiB.
	MaxBytes Bytes `yaml:"max_bytes" default:"10GiB" min:"1"`

	// MaxRows bounds the rows of a job whatever its quota. Default:
	// 100,000,000, the largest size the pipeline is tested to plan for.
	MaxRows int64 `yaml:"max_rows" default:"100000000" min:"1"`

	// MaxRowBytes bounds one row's text. Default: 8 MiB; it bounds the memory
	// of every buffer that holds a row.
	MaxRowBytes Bytes `yaml:"max_row_bytes" default:"8MiB" min:"1"`

	// Readers is how many inputs are made into rows and counted at a time, and
	// half as many more of accounts of which none is. Default: 4, which keep some
	// processors busy; each may hold a record of four times MaxRowBytes and a few
	// rows.
	Readers int `yaml:"readers" default:"4" min:"1"`

	// ConnectTimeout bounds the dial of a download. Default: 10s.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"10s" min:"1ms"`

	// StallTimeout ends a download that brings no byte for so long. Default:
	// 60s, longer than any healthy server pauses.
	StallTimeout time.Duration `yaml:"stall_timeout" default:"1m" min:"1ms"`

	// TotalTimeout bounds a whole download. Default: 6h, 10 GiB at 0.5 MB/s.
	TotalTimeout time.Duration `yaml:"total_timeout" default:"6h" min:"1ms"`
}

// Jobs is how the node runs jobs.
type Jobs struct {
	// MaxActive is how many jobs run at once; the rest stay pending. Default:
	// 64, enough to fill any server and few enough to keep in memory.
	MaxActive int `yaml:"max_active" default:"64" min:"1"`

	// KeptPlaces are for jobs beyond MaxActive of accounts to which nothing else
	// is left: one for each, half of them for priority 0 alone. Default: 16, as
	// many accounts as are likely to come while the jobs of others run for days.
	KeptPlaces int `yaml:"kept_places" default:"16" min:"1"`

	// Weights are what accounts are to have beside each other, of places
	// and of turns at the engines. Default: 1 for each.
	Weights map[string]int `yaml:"weights" min:"1"`

	// MaxFailedRows is how many failed rows a job survives, at least 1.
	// Default: null, the larger of 1 row and 5 % of the rows.
	MaxFailedRows *int64 `yaml:"max_failed_rows"`

	// LeaseTTL is how long the node's session outlives its last renewal.
	// Default: 6s: a renewal may be lost before jobs change hands, and they do
	// before workers without an owner have to wait.
	LeaseTTL time.Duration `yaml:"lease_ttl" default:"6s" min:"1s"`

	// PartBytes and PartInterval say when finished rows are flushed to a part
	// and committed. Defaults: 48 MiB, input and output counted, or 5s: the
	// work a crash can repeat.
	PartBytes    Bytes         `yaml:"part_bytes" default:"48MiB" min:"1"`
	PartInterval time.Duration `yaml:"part_interval" default:"5s" min:"1ms"`

	// JoinBytes is up to which size complete parts of shards in a row are put
	// together while a job runs, where the object storage copies only long
	// ranges by itself. Default: 512 MiB: few requests for the result. As
	// the end of the job comes near it becomes less, down to an eighth, which is
	// a second's work or two.
	JoinBytes Bytes `yaml:"join_bytes" default:"512MiB" min:"1"`

	// ShardRows and ShardBytes bound one shard of the input. Defaults: 16,384
	// rows or 8 MiB: with its answers a shard usually fits one part, which
	// then needs no merging.
	ShardRows  int   `yaml:"shard_rows" default:"16384" min:"1"`
	ShardBytes Bytes `yaml:"shard_bytes" default:"8MiB" min:"1"`

	// Dedup has equal rows run once in jobs whose submissions do not say. Default:
	// false. DedupRows is how many different rows of such a job are remembered
	// while its input is read; further ones run. Default: 2,097,152, about 95 MB.
	Dedup     bool `yaml:"dedup"`
	DedupRows int  `yaml:"dedup_rows" default:"2097152" min:"1"`

	// MemoryBudget bounds the bytes of rows in memory, over all jobs.
	// Default: 64 MiB.
	MemoryBudget Bytes `yaml:"memory_budget" default:"64MiB"`

	// MaxAttempts is how often a row is tried before it counts as failed.
	// Default: 5. Faults of a whole engine are not counted.
	MaxAttempts int `yaml:"max_attempts" default:"5" min:"1"`

	// RowPatience is the least time an answer is waited for before its request
	// is taken for hung and sent again, once it is known how fast the server
	// is; a server that is known to be slow gets more. Default: 60s, far above
	// the usual, and no job stands still for long.
	RowPatience time.Duration `yaml:"row_patience" default:"1m" min:"10ms"`

	// WaitForEngine is how long a job waits for a server of its model.
	// Default: 30m, longer than a large model takes to load.
	WaitForEngine time.Duration `yaml:"wait_for_engine" default:"30m" min:"0s"`

	// ProbeInterval is the time between looks at whether a server is there and
	// what it serves. Default: 5s; rows that fail make the node look at once.
	ProbeInterval time.Duration `yaml:"probe_interval" default:"5s" min:"10ms"`

	// AskedModels bounds the models of one server that a short row is sent to,
	// once for each start of the server, where neither it nor the catalog says
	// whether they generate, reason or embed; 0 asks none. Default: 8: more are
	// those of a gateway, where a row of each may cost, or of a server that loads
	// each model for its row.
	AskedModels int `yaml:"asked_models" default:"8"`

	// AdoptionTimeout is how long a node goes on with rows of a job whose owner
	// is gone before it lets go of them, and for how long the next owner waits for
	// a silent node that was downloading the input. Default: 30s, several times
	// what the next owner takes to appear.
	AdoptionTimeout time.Duration `yaml:"adoption_timeout" default:"30s" min:"1s"`

	// SettleTime is how long what a job needed stays after its end, and merged
	// parts after their merge, where Redis may forget its last writes in a
	// crash. Default: 30s, longer than it forgets with appendfsync everysec and
	// than a restart or a failover takes. The embedded store forgets nothing.
	SettleTime time.Duration `yaml:"settle_time" default:"30s" min:"1s"`

	// InputRetention is how long the input of a job that failed, was cancelled
	// or has failed rows is kept after its end, so that it can be resumed; 0s
	// is not at all. Default: 168h, a week, in which somebody has noticed.
	InputRetention time.Duration `yaml:"input_retention" default:"168h" min:"0s"`

	// StoragePatience is how long another node must have been able to use the
	// bucket that this one cannot before jobs and rows go there, and how long an
	// error of storage is tried again that is not known to pass. Default: 1m,
	// longer than a service takes to restart.
	StoragePatience time.Duration `yaml:"storage_patience" default:"1m" min:"10ms"`

	// DrainTimeout is how long rows in flight may finish at shutdown.
	// Default: 30s, the usual patience of a supervisor.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s" min:"0s"`
}

// Retention is how a node removes data whose time is over. How long that is
// each account says (rowmill settings set).
type Retention struct {
	// Interval is the time between looks for jobs whose time is over. Default:
	// 1m; retention is counted in days.
	Interval time.Duration `yaml:"interval" default:"1m" min:"1s"`
	// Batch bounds the jobs whose data goes at one look; the next follows soon
	// while there are more. Default: 100, so that jobs that run hardly notice.
	Batch int `yaml:"batch" default:"100" min:"1"`
	// OrphanAge is how old objects must be that belong to no job, left by a
	// crash, before they are removed. Default: 24h, longer than any upload.
	OrphanAge time.Duration `yaml:"orphan_age" default:"24h" min:"1h"`
	// ClockTolerance is how far this node's clock may be from the store's before
	// the node removes nothing. Default: 2m, far more than clocks that are set by
	// NTP differ by, and far less than the day that is the shortest retention.
	ClockTolerance time.Duration `yaml:"clock_tolerance" default:"2m" min:"1s"`
	// CatchUp is how much faster than time the days of retention may pass where
	// the clock is ahead of them, because the service stood still or its clock
	// has jumped. Default: 24, a day an hour: a wrong clock is noticed before it
	// costs anything, and after a quiet week retention is late by a morning.
	CatchUp int `yaml:"catch_up" default:"24" min:"1"`
}

// Webhooks is how the node tells receivers of the ends of jobs. Where they may be
// Inputs says.
type Webhooks struct {
	// Retries are the pauses after each attempt to send an event that was not
	// taken; after the last one it has failed. Default: 5s, 5m, 30m, 2h, 5h, 10h,
	// 14h, 20h, 24h, as the specification of Standard Webhooks suggests: over three
	// days, so that a receiver may be down over a weekend.
	Retries []time.Duration `yaml:"retries" min:"1ms"`
}

// Estimates are how costs are estimated.
type Estimates struct {
	// SamplingThreshold is from how many input tokens on an estimate of
	// priority 1 runs a part of its input. Default: 1,000,000: below, the
	// sample would be the whole job.
	SamplingThreshold int64 `yaml:"sampling_threshold" default:"1000000" min:"1"`
	// SampleTokens is how many input tokens the sample has. Default:
	// 1,000,000, as the interface says.
	SampleTokens int64 `yaml:"sample_tokens" default:"1000000" min:"1"`
}

// Quota bounds the jobs of one priority.
type Quota struct {
	Priority rowmill.Priority `yaml:"priority"`
	// RowQuota is the rows of one job. Default: as Priority.DefaultQuotas says.
	RowQuota *int64 `yaml:"row_quota"`
	// TokenQuota is the input tokens of one job. Default: as RowQuota.
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

// defaultRetries are those of the specification.
func defaultRetries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// checkJobs holds the settings of jobs against each other.
func (s Settings) checkJobs(check checker) {
	check(s.Jobs.MaxFailedRows == nil || *s.Jobs.MaxFailedRows >= 1, "jobs.max_failed_rows", "must be at least 1, or null for 5 %% of the rows")
	check(s.Jobs.MemoryBudget >= s.Inputs.MaxRowBytes, "jobs.memory_budget",
		"must hold at least one row of inputs.max_row_bytes (%v), is %v", s.Inputs.MaxRowBytes, s.Jobs.MemoryBudget)
	check(s.Jobs.AskedModels >= 0, "jobs.asked_models", "must not be negative, is %d; 0 asks about no model", s.Jobs.AskedModels)
	for i, q := range s.Quotas {
		key := fmt.Sprintf("quotas[%d]", i)
		check(q.RowQuota == nil || *q.RowQuota >= 0, key+".row_quota", "must not be negative")
		check(q.TokenQuota == nil || *q.TokenQuota >= 0, key+".token_quota", "must not be negative")
	}
}
