package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Validate returns every broken rule, each with the setting's name.
func (s Settings) Validate() error {
	var errs []error
	check := func(good bool, key, format string, args ...any) {
		if !good {
			errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
		}
	}
	positive := func(key string, n int64) { check(n > 0, key, "must be above 0, is %d", n) }
	lasting := func(key string, d, least time.Duration) {
		check(d >= least, key, "must be at least %v, is %v", least, d)
	}

	check(s.SecretsInterval == 0 || s.SecretsInterval >= 100*time.Millisecond, "secrets_interval", "must be at least 100ms, or 0s to look at SIGHUP alone, is %v", s.SecretsInterval)
	check(isAddress(s.HTTP.Listen), "http.listen", "must be HOST:PORT, is %q", s.HTTP.Listen)
	check(s.HTTP.AdminListen == "" || isAddress(s.HTTP.AdminListen), "http.admin_listen", "must be HOST:PORT, is %q", s.HTTP.AdminListen)
	check(s.HTTP.PublicURL == "" || isBaseURL(s.HTTP.PublicURL), "http.public_url", "must be an http or https URL without query, is %q", s.HTTP.PublicURL)
	check((s.HTTP.TLSCert == "") == (s.HTTP.TLSKey == ""), "http.tls_cert", "needs http.tls_key beside it, and the reverse")
	_, err := s.HTTP.SigningKeys()
	check(err == nil, "http.signing_key", "%v", err)
	positive("http.max_body", int64(s.HTTP.MaxBody))
	positive("http.max_file", int64(s.HTTP.MaxFile))
	positive("http.max_upload", int64(s.HTTP.MaxUpload))
	check(s.HTTP.RequestsPerMinute >= 0, "http.requests_per_minute", "must be at least 1, or 0 for no bound, is %d", s.HTTP.RequestsPerMinute)

	positive("http.max_keys", int64(s.HTTP.MaxKeys))
	positive("http.max_streams", int64(s.HTTP.MaxStreams))

	s.checkOIDC(check)
	s.checkTracing(check)
	s.checkStorage(check)
	s.checkCluster(check)

	positive("inputs.max_bytes", int64(s.Inputs.MaxBytes))
	positive("inputs.max_rows", s.Inputs.MaxRows)
	positive("inputs.max_row_bytes", int64(s.Inputs.MaxRowBytes))
	positive("inputs.readers", int64(s.Inputs.Readers))
	lasting("inputs.connect_timeout", s.Inputs.ConnectTimeout, time.Millisecond)
	lasting("inputs.stall_timeout", s.Inputs.StallTimeout, time.Millisecond)
	lasting("inputs.total_timeout", s.Inputs.TotalTimeout, time.Millisecond)

	check(s.MemoryLimit == 0 || s.MemoryLimit >= s.Jobs.MemoryBudget, "memory_limit",
		"must be above jobs.memory_budget (%v), or 0 for three times that and 32 MiB, is %v", s.Jobs.MemoryBudget, s.MemoryLimit)
	positive("jobs.max_active", int64(s.Jobs.MaxActive))
	positive("jobs.kept_places", int64(s.Jobs.KeptPlaces))
	for _, account := range slices.Sorted(maps.Keys(s.Jobs.Weights)) {
		positive("jobs.weights."+account, int64(s.Jobs.Weights[account]))
	}
	check(s.Jobs.MaxFailedRows == nil || *s.Jobs.MaxFailedRows >= 1, "jobs.max_failed_rows", "must be at least 1, or null for 5 %% of the rows")
	lasting("jobs.lease_ttl", s.Jobs.LeaseTTL, time.Second)
	positive("jobs.part_bytes", int64(s.Jobs.PartBytes))
	lasting("jobs.part_interval", s.Jobs.PartInterval, time.Millisecond)
	positive("jobs.join_bytes", int64(s.Jobs.JoinBytes))
	positive("jobs.shard_rows", int64(s.Jobs.ShardRows))
	positive("jobs.shard_bytes", int64(s.Jobs.ShardBytes))
	positive("jobs.dedup_rows", int64(s.Jobs.DedupRows))
	check(s.Jobs.MemoryBudget >= s.Inputs.MaxRowBytes, "jobs.memory_budget",
		"must hold at least one row of inputs.max_row_bytes (%v), is %v", s.Inputs.MaxRowBytes, s.Jobs.MemoryBudget)
	positive("jobs.max_attempts", int64(s.Jobs.MaxAttempts))
	lasting("jobs.row_patience", s.Jobs.RowPatience, 10*time.Millisecond)
	lasting("jobs.wait_for_engine", s.Jobs.WaitForEngine, 0)
	lasting("jobs.probe_interval", s.Jobs.ProbeInterval, 10*time.Millisecond)
	check(s.Jobs.AskedModels >= 0, "jobs.asked_models", "must not be negative, is %d; 0 asks about no model", s.Jobs.AskedModels)
	lasting("jobs.adoption_timeout", s.Jobs.AdoptionTimeout, time.Second)
	lasting("jobs.settle_time", s.Jobs.SettleTime, time.Second)
	lasting("jobs.input_retention", s.Jobs.InputRetention, 0)
	lasting("jobs.storage_patience", s.Jobs.StoragePatience, 10*time.Millisecond)
	lasting("jobs.drain_timeout", s.Jobs.DrainTimeout, 0)

	lasting("retention.interval", s.Retention.Interval, time.Second)
	positive("retention.batch", int64(s.Retention.Batch))
	lasting("retention.orphan_age", s.Retention.OrphanAge, time.Hour)
	lasting("retention.clock_tolerance", s.Retention.ClockTolerance, time.Second)
	positive("retention.catch_up", int64(s.Retention.CatchUp))

	for i, pause := range s.Webhooks.Retries {
		lasting(fmt.Sprintf("webhooks.retries[%d]", i), pause, time.Millisecond)
	}

	positive("estimates.sampling_threshold", s.Estimates.SamplingThreshold)
	positive("estimates.sample_tokens", s.Estimates.SampleTokens)

	names := map[string]bool{}
	for i, e := range s.Engines {
		key := fmt.Sprintf("engines[%d]", i)
		check(isBaseURL(e.URL), key+".url", "must be an http or https URL without query, such as http://127.0.0.1:8000, is %q", e.URL)
		check(!names[e.DisplayName()], key+".name", "%q is used twice; give each engine a name of its own", e.DisplayName())
		names[e.DisplayName()] = true
		check(e.MaxRequestsPerMinute >= 0, key+".max_requests_per_minute", "must be at least 0, is %d", e.MaxRequestsPerMinute)
		check(e.MaxTokensPerMinute >= 0, key+".max_tokens_per_minute", "must be at least 0, is %d", e.MaxTokensPerMinute)
	}
	check(s.MaxRequestsPerMinute >= 0, "max_requests_per_minute", "must be at least 0, is %d", s.MaxRequestsPerMinute)
	check(s.MaxTokensPerMinute >= 0, "max_tokens_per_minute", "must be at least 0, is %d", s.MaxTokensPerMinute)
	chosen := func(key string, c Choice) {
		check(slices.Contains([]Choice{Auto, Always, Never}, c), key, "must be auto, always or never, is %q", c)
	}
	chosen("discover.enabled", s.Discover.Enabled)
	for i, address := range s.Discover.Addresses {
		key := fmt.Sprintf("discover.addresses[%d]", i)
		check(isAddress(address) && address[0] != ':', key, "must be HOST:PORT, such as 127.0.0.1:8000, is %q", address)
		check(!slices.Contains(s.Discover.Addresses[:i], address), key, "%s is named twice", address)
	}
	check(len(s.Discover.Addresses) > 0, "discover.addresses", "names no address; to look nowhere, set discover.enabled to never")
	lasting("discover.interval", s.Discover.Interval, 100*time.Millisecond)
	lasting("discover.timeout", s.Discover.Timeout, 10*time.Millisecond)
	chosen("simulator.enabled", s.Simulator.Enabled)
	check(s.Simulator.Enabled != Always || len(s.Engines) == 0, "simulator.enabled",
		"is always, but engines are configured: simulated and real outputs are never mixed; drop one of the two (--simulate=auto)")
	check(s.Simulator.Enabled != Never || len(s.Engines) > 0 || s.Discover.Enabled != Never, "simulator.enabled",
		"is never, as is discover.enabled, and no engine is configured: name one with --engine URL")
	lasting("simulator.ttft", s.Simulator.TTFT, 0)
	lasting("simulator.per_token", s.Simulator.PerToken, 0)
	positive("simulator.slots", int64(s.Simulator.Slots))
	for i, q := range s.Quotas {
		key := fmt.Sprintf("quotas[%d]", i)
		check(q.RowQuota == nil || *q.RowQuota >= 0, key+".row_quota", "must not be negative")
		check(q.TokenQuota == nil || *q.TokenQuota >= 0, key+".token_quota", "must not be negative")
	}
	return errors.Join(append(errs, s.Log.Validate())...)
}

// checkOIDC holds the settings of tokens against each other.
func (s Settings) checkOIDC(check checker) {
	o := s.OIDC
	if o.Issuer == "" {
		check(o.Audience == "" && o.AccountClaim == "" && o.RoleClaim == "" && o.Account == "" && o.Role == "" && len(o.Accounts) == 0 && len(o.Roles) == 0,
			"oidc", "needs oidc.issuer, the URL of the issuer whose tokens are taken")
		return
	}
	u, err := url.Parse(o.Issuer)
	check(isBaseURL(o.Issuer) && err == nil && (u.Scheme == "https" || isLoopbackHost(u.Host)), "oidc.issuer", "must be an https URL without query, as tokens name it, is %q", o.Issuer)
	check(o.Audience != "", "oidc.audience", "must say what tokens are for, such as the client's id at the issuer: without it a token for any other service would be taken")
	check(o.AccountClaim != "" || o.Account != "", "oidc.account", "must name the account of all tokens, or oidc.account_claim the claim that does")
	check(o.AccountClaim != "" || len(o.Accounts) == 0, "oidc.accounts", "maps the values of oidc.account_claim, which is not set")
	check(o.RoleClaim != "" || o.Role != "", "oidc.role", "must be the role of all tokens, or oidc.role_claim the claim that says so")
	check((o.RoleClaim != "") == (len(o.Roles) > 0), "oidc.roles", "maps the values of oidc.role_claim: set both or neither")
	known := func(key, role string) {
		check(slices.Contains([]string{"admin", "user", "reader"}, role), key, "must be admin, user or reader, is %q", role)
	}
	if o.Role != "" {
		known("oidc.role", o.Role)
	}
	for _, value := range slices.Sorted(maps.Keys(o.Roles)) {
		known("oidc.roles."+value, o.Roles[value])
	}
	check(o.ClockTolerance >= 0 && o.ClockTolerance <= 10*time.Minute, "oidc.clock_tolerance", "must be 0s to 10m, is %v", o.ClockTolerance)
	check(o.KeysInterval >= time.Minute, "oidc.keys_interval", "must be at least 1m, is %v", o.KeysInterval)
}

// Validate returns every broken rule.
func (l Log) Validate() error {
	var errs []error
	if err := new(slog.Level).UnmarshalText([]byte(l.Level)); err != nil {
		errs = append(errs, fmt.Errorf("log.level: must be debug, info, warn or error, is %q", l.Level))
	}
	if !slices.Contains([]string{"auto", "text", "json"}, l.Format) {
		errs = append(errs, fmt.Errorf("log.format: must be auto, text or json, is %q", l.Format))
	}
	if l.AuditWebhook != "" && !isBaseURL(l.AuditWebhook) {
		errs = append(errs, fmt.Errorf("log.audit_webhook: must be an http or https URL without query, is %q", l.AuditWebhook))
	}
	secrets, err := l.AuditSecrets()
	if err != nil {
		errs = append(errs, fmt.Errorf("log.audit_webhook_secret: %w", err))
	}
	if err == nil && (l.AuditWebhook == "") != (len(secrets) == 0) {
		errs = append(errs, errors.New("log.audit_webhook: needs log.audit_webhook_secret beside it, and the reverse"))
	}
	return errors.Join(errs...)
}

// DisplayName is the engine's name, or host and port of its URL.
func (e Engine) DisplayName() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Host()
}

// Pace is the most that this node sends to the engine of a name.
func (s Settings) Pace(engineName string) engine.Pace {
	pace := engine.Pace{Requests: s.MaxRequestsPerMinute, Tokens: s.MaxTokensPerMinute}
	for _, e := range s.Engines {
		if e.DisplayName() == engineName {
			pace.Requests = cmp.Or(e.MaxRequestsPerMinute, pace.Requests)
			pace.Tokens = cmp.Or(e.MaxTokensPerMinute, pace.Tokens)
		}
	}
	return pace
}

// Host is host and port of the engine's URL.
func (e Engine) Host() string {
	if u, err := url.Parse(e.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return e.URL
}

func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.User == nil
}
