package store

import (
	"time"

	"github.com/rowmill/rowmill"
)

// A Fence proves that a session owns a job. The store refuses the write if the session or
// the epoch is out of date.
type Fence struct {
	JobID   string
	Session string
	Epoch   int64
}

// IsCutIntoShards reports whether the input has been cut into shards. From then on the rows have
// numbers, and finished rows can be committed.
func (r *Record) IsCutIntoShards() bool { return r.Shards > 0 }

// A Revision identifies one state of a job's record. The zero Revision means that the
// record does not exist.
type Revision struct {
	Version int64
	Session string
	Epoch   int64
	Status  rowmill.Status
	Writes  int64 // number of writes in the record by the writer that Revisions was called with
}

// Record holds everything that is stored about a job, except its parts.
type Record struct {
	SchemaVersion int          `json:"schema_version"`
	Job           rowmill.Job  `json:"job"`
	Spec          rowmill.Spec `json:"spec"`
	Version       int64        `json:"version"`           // grows with every write
	Session       string       `json:"session,omitempty"` // session of the owner, live or expired; empty when the job has no owner
	Epoch         int64        `json:"epoch"`             // grows with every change of owner

	// Claims lists the claims of the job since the job last made progress, oldest first.
	// A finished row or a merged shard empties the list. While the job only waits for
	// something, the list does not contain the claim of the present owner.
	Claims []Claim `json:"claims,omitempty"`

	// Events lists the steps of the job's history that no other field shows, oldest
	// first, at most MaxEvents.
	Events []JobEvent `json:"events,omitempty"`

	DownloadStarted  *time.Time `json:"download_started,omitempty"`  // when the download of the input began; stored before the first request
	Downloader       string     `json:"downloader,omitempty"`        // address of the node that began the download, HOST:PORT; empty without a cluster
	DownloadFinished *time.Time `json:"download_finished,omitempty"` // when the whole input was stored, as downloaded or cut into shards
	Shards           int        `json:"shards"`                      // number of shards; 0 until the input is cut into shards
	Cut              string     `json:"cut,omitempty"`               // says which rows are in which shard, see shard.Manifest; empty for an estimate
	ShardLimits

	// Lost is the sum of the totals of the lost parts (see Parts.MarkPartsLost). The account
	// has paid for their rows.
	Lost RowTotals `json:"lost,omitzero"`

	// Reserved is the amount that Reserve set aside for the job; zero once the job has
	// ended.
	Reserved rowmill.Money `json:"reserved,omitempty"`

	// Ended is the time when the job ended, by the store's clock. Only the store sets
	// Ended, and only if Job.Completed differs from this clock by more than EndTolerance.
	Ended *time.Time `json:"ended,omitempty"`

	DataRemoved *time.Time `json:"data_removed,omitempty"` // when retention or a client removed input, parts and results
	DataGone    bool       `json:"data_gone,omitempty"`    // the objects and part records are deleted; set some time after DataRemoved

	InputUntil   *time.Time `json:"input_until,omitempty"`   // time until which objects keep the input of a job that has ended
	InputRemoved *time.Time `json:"input_removed,omitempty"` // when the input of a job that has ended was removed

	// ShownRunning means that a client has asked for the status of the job. Some clients
	// wait until they see the job run. If the job succeeds before the first such request,
	// the answer to that request may show the job as running.
	ShownRunning bool `json:"shown_running,omitempty"`

	// SpecDamaged means that the store found the specification damaged and ended the
	// job. Spec then holds only the account, the model's price, and the dialect of a
	// batch.
	SpecDamaged bool `json:"spec_damaged,omitempty"`

	// Trace is the span that submitted the job, in the format of the traceparent
	// header; empty when the client sent none.
	Trace string `json:"trace,omitempty"`

	// Artifacts are the job's result files by variant name. "full" and "rows" are set when
	// the job succeeds, variants with fewer columns when a client first requests them.
	Artifacts map[string]Artifact `json:"artifacts,omitempty"`
}

// ShardLimits are the limits of a shard. They are set when rows of the input ran before the
// whole input was cut into shards. An owner that cuts the input again must use the same limits.
type ShardLimits struct {
	ShardRows  int   `json:"shard_rows,omitempty"`
	ShardBytes int64 `json:"shard_bytes,omitempty"`
}

// A JobHead is the part of a record that clients see.
type JobHead struct {
	Job          rowmill.Job `json:"job"`
	Account      string      `json:"account"`
	ShownRunning bool        `json:"shown_running,omitempty"` // see Record.ShownRunning
}

// Head returns the part of the record that clients see.
func (r *Record) Head() *JobHead {
	return &JobHead{Job: r.Job, Account: r.Spec.Account, ShownRunning: r.ShownRunning}
}

// Artifact is a finished result object.
type Artifact struct {
	Key  string `json:"key"`  // blob key
	Size int64  `json:"size"` // bytes
}
