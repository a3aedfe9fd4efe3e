// Package settings is everything an operator of a Rowmill node can choose: one
// struct with defaults and reasons, and the code that fills it from flags,
// environment, one YAML file and defaults, in that order. It knows what the
// settings are called and what they may be, not what they do.
package settings

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
)

// Settings are the effective settings of one node. The name of a setting is
// its path of yaml tags, such as jobs.max_active; the environment variable is
// the same in capitals behind ROWMILL_, with underscores for the dots.
type Settings struct {
	// Data is the directory of records and objects. Default:
	// $XDG_STATE_HOME/rowmill, else ~/.local/state/rowmill: state that must
	// survive a restart and does not depend on where the program was started.
	Data string `yaml:"data"`

	// Catalog is a YAML file of models and aliases that replaces the embedded
	// catalog, or adds to it where it says extends: default. Default: empty, the
	// embedded one.
	Catalog string `yaml:"catalog"`

	// Tokenizers is a directory of vocabularies in the form of Hugging Face,
	// NAME.json or NAME/tokenizer.json for each tokenizer that the catalog
	// names, and for each model that names none, under its own name, also as
	// ORGANISATION/NAME. Default: empty; gpt-oss is counted exactly, other models
	// by a stand-in that is corrected by what their servers report.
	Tokenizers string `yaml:"tokenizers"`

	// APIKey is an administrator key of the account "default", or several, each
	// on a line of its own, so that it can be changed while clients use it. Default:
	// empty; the first start then makes one and prints it once.
	APIKey Secret `yaml:"api_key"`

	// SecretsInterval is the time between looks for secrets that have changed, in
	// their files and in the configuration file. Default: 5s, sooner than anybody
	// goes on with the next node; 0s looks at SIGHUP alone.
	SecretsInterval time.Duration `yaml:"secrets_interval"`

	// ClockOffset is added to this process's wall clock wherever it reads the
	// time for a record. Default: 0. For tests of clocks that are wrong alone.
	ClockOffset time.Duration `yaml:"clock_offset"`

	// MemoryLimit is what the process tries to stay below: the nearer it
	// comes, the more often it collects garbage. Default: 0, three times
	// jobs.memory_budget and 32 MiB: rows, their copies on the way to disk and
	// what collecting leaves behind, and vocabularies; with objects in S3 32
	// MiB more, for what is read ahead and waits to be uploaded. GOMEMLIMIT,
	// where it is set, goes before it.
	MemoryLimit Bytes `yaml:"memory_limit"`

	HTTP    HTTP     `yaml:"http"`
	OIDC    OIDC     `yaml:"oidc"`
	Store   Store    `yaml:"store"`
	Objects Objects  `yaml:"objects"`
	Cluster Cluster  `yaml:"cluster"`
	Inputs  Inputs   `yaml:"inputs"`
	Jobs    Jobs     `yaml:"jobs"`
	Engines []Engine `yaml:"engines"` // servers to use; none: the servers that Discover finds

	// MaxRequestsPerMinute and MaxTokensPerMinute (of prompts and answers) are the
	// most that this node sends to an engine without limits of its own. Default: 0, no
	// limit. They are for upstreams that bill or that have a quota.
	MaxRequestsPerMinute int `yaml:"max_requests_per_minute"`
	MaxTokensPerMinute   int `yaml:"max_tokens_per_minute"`

	Discover  Discover  `yaml:"discover"`
	Simulator Simulator `yaml:"simulator"`
	Estimates Estimates `yaml:"estimates"`
	Retention Retention `yaml:"retention"`
	Webhooks  Webhooks  `yaml:"webhooks"`
	Quotas    []Quota   `yaml:"quotas"` // per priority; what is not named keeps its default
	Log       Log       `yaml:"log"`
	Tracing   Tracing   `yaml:"tracing"`
}

// APIKeys are the administrator keys of the configuration.
func (s Settings) APIKeys() (keys []string) {
	for line := range strings.Lines(s.APIKey.Reveal()) {
		if key := strings.TrimSpace(line); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// HTTP is how clients reach the node.
type HTTP struct {
	// Listen is the address of the API. Default: 127.0.0.1:8088, so that
	// nothing is open to the network unless somebody says so.
	Listen string `yaml:"listen"`

	// AdminListen moves /metrics and pprof to an address of their own.
	// Default: empty; /metrics is then on Listen and pprof is off.
	AdminListen string `yaml:"admin_listen"`

	// PublicURL is the base of signed URLs, such as https://mill.example.org.
	// Default: empty, the scheme and address of Listen.
	PublicURL string `yaml:"public_url"`

	// TLSCert and TLSKey are PEM files; both or neither. Default: plain HTTP.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`

	// SigningKey signs the URLs of results where objects are in a directory, and seals
	// the sessions of the console: 32 bytes or more in base64. Several, apart by commas
	// or white space, all verify and the first signs, so that it can be changed. The
	// word records stands for the keys of the records, which the first node makes.
	// Default: none, those of the records, which all nodes have.
	SigningKey Secret `yaml:"signing_key"`

	// MaxBody bounds a request's body. Default: 512 MiB; above that an input
	// belongs in a file behind a URL.
	MaxBody Bytes `yaml:"max_body"`

	// MaxFile bounds a file that is uploaded in one piece, and a part of one that is
	// not. Default: 512 MiB, what OpenAI takes.
	MaxFile Bytes `yaml:"max_file"`

	// MaxUpload bounds a file that is uploaded in parts. Default: 8 GiB, what OpenAI
	// takes.
	MaxUpload Bytes `yaml:"max_upload"`

	// RequestsPerMinute bounds the requests of each API key that has no bound
	// of its own, on this node. Default: 0, no bound: jobs of different
	// accounts take turns without one.
	RequestsPerMinute int `yaml:"requests_per_minute"`

	// MaxKeys bounds the API keys of each account. Default: 1,000, far more than
	// people and programs need; every node holds all keys and reads them anew
	// every two seconds.
	MaxKeys int `yaml:"max_keys"`

	// MaxStreams bounds the streams of events of this node. Default: 256, more than
	// people look at; each holds a connection.
	MaxStreams int `yaml:"max_streams"`
}

// OIDC is whose tokens are taken in place of API keys, and what they stand for. See
// package identity.
type OIDC struct {
	// Issuer is the URL of an issuer of OpenID Connect, as its tokens name it. Default:
	// empty, no tokens are taken.
	Issuer string `yaml:"issuer"`
	// Audience is what tokens have to be for. Required beside Issuer: without it a token
	// for another service of the issuer would be one for this.
	Audience string `yaml:"audience"`

	// AccountClaim is the claim that says whom a bearer acts for, a string or a list;
	// dots lead into objects. Accounts maps its values; without it they are accounts.
	// Account is for tokens without such a value. Default: empty; they are refused.
	AccountClaim string            `yaml:"account_claim"`
	Accounts     map[string]string `yaml:"accounts"`
	Account      string            `yaml:"account"`

	// RoleClaim, Roles and Role are the same for the role: admin, user or reader, of
	// several the highest. Without Roles no value stands for one.
	RoleClaim string            `yaml:"role_claim"`
	Roles     map[string]string `yaml:"roles"`
	Role      string            `yaml:"role"`

	// ClockTolerance is how far the issuer's clock may be from this node's. Default:
	// 30s, more than clocks that are set by NTP differ by, and little beside the life
	// of a token.
	ClockTolerance time.Duration `yaml:"clock_tolerance"`
	// KeysInterval is for how long the issuer's keys are believed, while it can be
	// asked. Default: 1h: for so long a key that it has withdrawn still verifies; new
	// ones are asked for when they are met.
	KeysInterval time.Duration `yaml:"keys_interval"`
}

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
	MaxBytes Bytes `yaml:"max_bytes"`

	// MaxRows bounds the rows of a job whatever its quota. Default:
	// 100,000,000, the largest size the pipeline is tested to plan for.
	MaxRows int64 `yaml:"max_rows"`

	// MaxRowBytes bounds one row's text. Default: 8 MiB; it bounds the memory
	// of every buffer that holds a row.
	MaxRowBytes Bytes `yaml:"max_row_bytes"`

	// Readers is how many inputs are made into rows and counted at a time, and
	// half as many more of accounts of which none is. Default: 4, which keep some
	// processors busy; each may hold a record of four times MaxRowBytes and a few
	// rows.
	Readers int `yaml:"readers"`

	// ConnectTimeout bounds the dial of a download. Default: 10s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`

	// StallTimeout ends a download that brings no byte for so long. Default:
	// 60s, longer than any healthy server pauses.
	StallTimeout time.Duration `yaml:"stall_timeout"`

	// TotalTimeout bounds a whole download. Default: 6h, 10 GiB at 0.5 MB/s.
	TotalTimeout time.Duration `yaml:"total_timeout"`
}

// Jobs is how the node runs jobs.
type Jobs struct {
	// MaxActive is how many jobs run at once; the rest stay pending. Default:
	// 64, enough to fill any server and few enough to keep in memory.
	MaxActive int `yaml:"max_active"`

	// KeptPlaces are for jobs beyond MaxActive of accounts to which nothing else
	// is left: one for each, half of them for priority 0 alone. Default: 16, as
	// many accounts as are likely to come while the jobs of others run for days.
	KeptPlaces int `yaml:"kept_places"`

	// Weights are what accounts are to have beside each other, of places
	// and of turns at the engines. Default: 1 for each.
	Weights map[string]int `yaml:"weights"`

	// MaxFailedRows is how many failed rows a job survives, at least 1.
	// Default: null, the larger of 1 row and 5 % of the rows.
	MaxFailedRows *int64 `yaml:"max_failed_rows"`

	// LeaseTTL is how long the node's session outlives its last renewal.
	// Default: 6s: a renewal may be lost before jobs change hands, and they do
	// before workers without an owner have to wait.
	LeaseTTL time.Duration `yaml:"lease_ttl"`

	// PartBytes and PartInterval say when finished rows are flushed to a part
	// and committed. Defaults: 48 MiB, input and output counted, or 5s: the
	// work a crash can repeat.
	PartBytes    Bytes         `yaml:"part_bytes"`
	PartInterval time.Duration `yaml:"part_interval"`

	// JoinBytes is up to which size complete parts of shards in a row are put
	// together while a job runs, where the object storage copies only long
	// ranges by itself. Default: 512 MiB: few requests for the result. As
	// the end of the job comes near it becomes less, down to an eighth, which is
	// a second's work or two.
	JoinBytes Bytes `yaml:"join_bytes"`

	// ShardRows and ShardBytes bound one shard of the input. Defaults: 16,384
	// rows or 8 MiB: with its answers a shard usually fits one part, which
	// then needs no merging.
	ShardRows  int   `yaml:"shard_rows"`
	ShardBytes Bytes `yaml:"shard_bytes"`

	// Dedup has equal rows run once in jobs whose submissions do not say. Default:
	// false. DedupRows is how many different rows of such a job are remembered
	// while its input is read; further ones run. Default: 2,097,152, about 95 MB.
	Dedup     bool `yaml:"dedup"`
	DedupRows int  `yaml:"dedup_rows"`

	// MemoryBudget bounds the bytes of rows in memory, over all jobs.
	// Default: 64 MiB.
	MemoryBudget Bytes `yaml:"memory_budget"`

	// MaxAttempts is how often a row is tried before it counts as failed.
	// Default: 5. Faults of a whole engine are not counted.
	MaxAttempts int `yaml:"max_attempts"`

	// RowPatience is the least time an answer is waited for before its request
	// is taken for hung and sent again, once it is known how fast the server
	// is; a server that is known to be slow gets more. Default: 60s, far above
	// the usual, and no job stands still for long.
	RowPatience time.Duration `yaml:"row_patience"`

	// WaitForEngine is how long a job waits for a server of its model.
	// Default: 30m, longer than a large model takes to load.
	WaitForEngine time.Duration `yaml:"wait_for_engine"`

	// ProbeInterval is the time between looks at whether a server is there and
	// what it serves. Default: 5s; rows that fail make the node look at once.
	ProbeInterval time.Duration `yaml:"probe_interval"`

	// AskedModels bounds the models of one server that a short row is sent to,
	// once for each start of the server, where neither it nor the catalog says
	// whether they generate, reason or embed; 0 asks none. Default: 8: more are
	// those of a gateway, where a row of each may cost, or of a server that loads
	// each model for its row.
	AskedModels int `yaml:"asked_models"`

	// AdoptionTimeout is how long a node goes on with rows of a job whose owner
	// is gone before it lets go of them, and for how long the next owner waits for
	// a silent node that was downloading the input. Default: 30s, several times
	// what the next owner takes to appear.
	AdoptionTimeout time.Duration `yaml:"adoption_timeout"`

	// SettleTime is how long what a job needed stays after its end, and merged
	// parts after their merge, where Redis may forget its last writes in a
	// crash. Default: 30s, longer than it forgets with appendfsync everysec and
	// than a restart or a failover takes. The embedded store forgets nothing.
	SettleTime time.Duration `yaml:"settle_time"`

	// InputRetention is how long the input of a job that failed, was cancelled
	// or has failed rows is kept after its end, so that it can be resumed; 0s
	// is not at all. Default: 168h, a week, in which somebody has noticed.
	InputRetention time.Duration `yaml:"input_retention"`

	// StoragePatience is how long another node must have been able to use the
	// bucket that this one cannot before jobs and rows go there, and how long an
	// error of storage is tried again that is not known to pass. Default: 1m,
	// longer than a service takes to restart.
	StoragePatience time.Duration `yaml:"storage_patience"`

	// DrainTimeout is how long rows in flight may finish at shutdown.
	// Default: 30s, the usual patience of a supervisor.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
}

// Retention is how a node removes data whose time is over. How long that is
// each account says (rowmill settings set).
type Retention struct {
	// Interval is the time between looks for jobs whose time is over. Default:
	// 1m; retention is counted in days.
	Interval time.Duration `yaml:"interval"`
	// Batch bounds the jobs whose data goes at one look; the next follows soon
	// while there are more. Default: 100, so that jobs that run hardly notice.
	Batch int `yaml:"batch"`
	// OrphanAge is how old objects must be that belong to no job, left by a
	// crash, before they are removed. Default: 24h, longer than any upload.
	OrphanAge time.Duration `yaml:"orphan_age"`
	// ClockTolerance is how far this node's clock may be from the store's before
	// the node removes nothing. Default: 2m, far more than clocks that are set by
	// NTP differ by, and far less than the day that is the shortest retention.
	ClockTolerance time.Duration `yaml:"clock_tolerance"`
	// CatchUp is how much faster than time the days of retention may pass where
	// the clock is ahead of them, because the service stood still or its clock
	// has jumped. Default: 24, a day an hour: a wrong clock is noticed before it
	// costs anything, and after a quiet week retention is late by a morning.
	CatchUp int `yaml:"catch_up"`
}

// Webhooks is how the node tells receivers of the ends of jobs. Where they may be
// Inputs says.
type Webhooks struct {
	// Retries are the pauses after each attempt to send an event that was not
	// taken; after the last one it has failed. Default: 5s, 5m, 30m, 2h, 5h, 10h,
	// 14h, 20h, 24h, as the specification of Standard Webhooks suggests: over three
	// days, so that a receiver may be down over a weekend.
	Retries []time.Duration `yaml:"retries"`
}

// Engine is one OpenAI-compatible inference server.
type Engine struct {
	// URL is the server's base, such as http://127.0.0.1:8000 (a path that
	// ends in /v1 is accepted). Required.
	URL string `yaml:"url"`
	// Name is what rows and logs call it. Default: host and port of URL.
	Name string `yaml:"name"`
	// APIKey is sent as a bearer token. Default: none. api_key_file names a
	// file that holds it, api_key_env an environment variable.
	APIKey Secret `yaml:"api_key"`
	// Models maps catalog ids to the server's names for them. Default: what
	// the catalog's engine_names say.
	Models map[string]string `yaml:"models"`
	// MaxRequestsPerMinute and MaxTokensPerMinute are the limits of this engine.
	// Default: the limits of the node.
	MaxRequestsPerMinute int `yaml:"max_requests_per_minute"`
	MaxTokensPerMinute   int `yaml:"max_tokens_per_minute"`
}

// Discover is how the node finds inference servers that nobody named. They are
// never sent a key.
type Discover struct {
	// Enabled is auto, always or never. Default: auto, as long as no engine is
	// configured: who names servers wants those and no others.
	Enabled Choice `yaml:"enabled"`
	// Addresses are where to look, HOST:PORT. Default: 127.0.0.1 with the usual
	// ports 8000 (vLLM), 8080 (llama.cpp), 11434 (Ollama) and 30000 (SGLang).
	Addresses []string `yaml:"addresses"`
	// Interval is the time between looks. Default: 5s, less than any model
	// takes to load.
	Interval time.Duration `yaml:"interval"`
	// Timeout bounds a look at all addresses, the one at start too. Default:
	// 1s; an idle server answers in milliseconds.
	Timeout time.Duration `yaml:"timeout"`
}

// A Choice says when something is done.
type Choice string

// The choices there are.
const (
	Auto   Choice = "auto"   // where it makes sense
	Always Choice = "always" // whatever else is set
	Never  Choice = "never"
)

// Simulator is the simulated engine. It serves every model of the catalog and
// makes its answers up.
type Simulator struct {
	// Enabled is auto, always or never. Default: auto, where no engine is
	// configured or found at start and the machine has no NVIDIA GPU: one with
	// a GPU has a server that is still loading, and waits for it.
	Enabled Choice `yaml:"enabled"`
	// TTFT is the time to the first token. Default: 20ms, near that of a small model.
	TTFT time.Duration `yaml:"ttft"`
	// PerToken is the time of each further token. Default: 200us, so that a
	// thousand-row demo ends in seconds.
	PerToken time.Duration `yaml:"per_token"`
	// Slots is how many rows it runs at once. Default: 256, as vLLM does.
	Slots int `yaml:"slots"`
}

// Estimates are how costs are estimated.
type Estimates struct {
	// SamplingThreshold is from how many input tokens on an estimate of
	// priority 1 runs a part of its input. Default: 1,000,000: below, the
	// sample would be the whole job.
	SamplingThreshold int64 `yaml:"sampling_threshold"`
	// SampleTokens is how many input tokens the sample has. Default:
	// 1,000,000, as the interface says.
	SampleTokens int64 `yaml:"sample_tokens"`
}

// Quota bounds the jobs of one priority.
type Quota struct {
	Priority rowmill.Priority `yaml:"priority"`
	// RowQuota is the rows of one job. Default: as Priority.DefaultQuotas says.
	RowQuota *int64 `yaml:"row_quota"`
	// TokenQuota is the input tokens of one job. Default: as RowQuota.
	TokenQuota *int64 `yaml:"token_quota"`
}

// Log is what the node tells its operator, on standard error.
type Log struct {
	// Level is debug, info, warn or error. Default: info.
	Level string `yaml:"level"`
	// Format is text, json or auto. Default: auto, text on a terminal and
	// json off it.
	Format string `yaml:"format"`
	// Audit is a file that gets each entry of the audit record that this node
	// makes, a JSON object a line, before the act is begun. Default: none; the
	// records have all entries.
	Audit string `yaml:"audit"`
	// AuditWebhook is a URL that each entry of the audit record is sent to, of all
	// nodes, in their order and until it is taken. Default: none.
	AuditWebhook string `yaml:"audit_webhook"`
	// AuditWebhookSecret signs what is sent there: whsec_ and 24 to 64 bytes in base64.
	// Several, each on a line of its own, all sign, so that it can be changed. Default:
	// none; required beside the URL.
	AuditWebhookSecret Secret `yaml:"audit_webhook_secret"`
}

// AuditSecrets are the secrets that sign what is sent of the audit record.
func (l Log) AuditSecrets() ([]string, error) {
	secrets := keyFields(l.AuditWebhookSecret)
	for i, secret := range secrets {
		text, found := strings.CutPrefix(secret, "whsec_")
		// The error of the decoder would show a part of the secret.
		if key, err := base64.StdEncoding.DecodeString(text); err != nil || !found || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("secret %d of %d must be whsec_ and 24 to 64 bytes in base64; `echo whsec_$(openssl rand -base64 32)` makes one", i+1, len(secrets))
		}
	}
	return secrets, nil
}

// Tracing is how the node tells a collector of OpenTelemetry what became of jobs. See
// package tracing.
type Tracing struct {
	// Endpoint is the URL that spans are posted to, by OTLP over HTTP; one without a path
	// gets /v1/traces. Default: empty, nothing is traced, unless OpenTelemetry's own
	// variables name a collector.
	Endpoint string `yaml:"endpoint"`

	// Headers go with each request, as NAME=VALUE apart by commas: what a collector wants
	// to know its clients by. Default: none, or OTEL_EXPORTER_OTLP_HEADERS.
	Headers Secret `yaml:"headers"`

	// Sample is the share of jobs that are traced, among those that were not submitted
	// within a trace: of these their client has decided. All nodes have the same.
	// Default: 1, all: what a job costs, Rows bounds.
	Sample float64 `yaml:"sample"`

	// Rows is the share of the rows of such a job whose requests are traced, the first
	// among them. Default: 0.01: enough to see what a server does, and a job of a million
	// rows makes ten thousand spans and no more.
	Rows float64 `yaml:"rows"`

	// Queue bounds the spans that wait to be sent; others are dropped. Default: 4,096,
	// about 6 MiB: some seconds of a busy node.
	Queue int `yaml:"queue"`

	// Timeout bounds a request to the collector. Default: 10s, as the specification has it.
	Timeout time.Duration `yaml:"timeout"`
}

// Defaults are the settings of a node that was told nothing, before Load
// completes them: Data depends on the environment, and a list that is given
// replaces its default.
func Defaults() Settings {
	return Settings{
		SecretsInterval: 5 * time.Second,

		HTTP:    HTTP{Listen: "127.0.0.1:8088", MaxBody: 512 * MiB, MaxFile: 512 * MiB, MaxUpload: 8 * GiB, MaxKeys: 1000, MaxStreams: 256},
		OIDC:    OIDC{ClockTolerance: 30 * time.Second, KeysInterval: time.Hour},
		Store:   Store{Prefix: "rowmill:"},
		Cluster: Cluster{Role: Both, Label: "rowmill"},
		Inputs: Inputs{
			MaxBytes:       10 * GiB,
			MaxRows:        100_000_000,
			MaxRowBytes:    8 * MiB,
			Readers:        4,
			ConnectTimeout: 10 * time.Second,
			StallTimeout:   time.Minute,
			TotalTimeout:   6 * time.Hour,
		},
		Jobs: Jobs{
			MaxActive:       64,
			KeptPlaces:      16,
			LeaseTTL:        6 * time.Second,
			PartBytes:       48 * MiB,
			PartInterval:    5 * time.Second,
			JoinBytes:       512 * MiB,
			ShardRows:       16384,
			DedupRows:       2 << 20,
			ShardBytes:      8 * MiB,
			MemoryBudget:    64 * MiB,
			MaxAttempts:     5,
			RowPatience:     time.Minute,
			WaitForEngine:   30 * time.Minute,
			ProbeInterval:   5 * time.Second,
			AskedModels:     8,
			AdoptionTimeout: 30 * time.Second,
			SettleTime:      30 * time.Second,
			InputRetention:  7 * 24 * time.Hour,
			StoragePatience: time.Minute,
			DrainTimeout:    30 * time.Second,
		},
		Discover:  Discover{Enabled: Auto, Interval: 5 * time.Second, Timeout: time.Second},
		Simulator: Simulator{Enabled: Auto, TTFT: 20 * time.Millisecond, PerToken: 200 * time.Microsecond, Slots: 256},
		Retention: Retention{Interval: time.Minute, Batch: 100, OrphanAge: 24 * time.Hour, ClockTolerance: 2 * time.Minute, CatchUp: 24},
		Estimates: Estimates{SamplingThreshold: 1_000_000, SampleTokens: 1_000_000},
		Log:       Log{Level: "info", Format: "auto"},
		Tracing:   Tracing{Sample: 1, Rows: 0.01, Queue: 4096, Timeout: 10 * time.Second},
	}
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

// defaultAddresses are the usual ports of inference servers on this machine.
func defaultAddresses() []string {
	return []string{"127.0.0.1:8000", "127.0.0.1:8080", "127.0.0.1:11434", "127.0.0.1:30000"}
}
