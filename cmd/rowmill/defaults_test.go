package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine/discover"
	"github.com/rowmill/rowmill/engine/sim"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/redis"
)

// The defaults of settings equal the defaults of the packages, so a setting that is not
// given changes nothing.
func TestDefaultsAreThoseOfTheParts(t *testing.T) {
	t.Parallel()
	s := must.Get(settings.Load(settings.Sources{Environ: []string{"HOME=/home/someone"}}))(t)
	pipeline, limits, download := actors.Config{}.WithDefaults(), input.Limits{}.WithDefaults(), input.Config{}.WithDefaults()
	finder := discover.Config{}.WithDefaults()
	api, profile := http.Config{}.WithDefaults(), sim.DefaultProfile()
	for name, pair := range map[string][2]any{
		"inputs.readers":            {s.Inputs.Readers, pipeline.Inputs.Readers},
		"jobs.max_active":           {s.Jobs.MaxActive, pipeline.Ownership.MaxActive},
		"jobs.kept_places":          {s.Jobs.KeptPlaces, pipeline.Ownership.KeptPlaces},
		"jobs.lease_ttl":            {s.Jobs.LeaseTTL, pipeline.Ownership.LeaseTTL},
		"jobs.part_bytes":           {int64(s.Jobs.PartBytes), pipeline.Parts.Bytes},
		"jobs.part_interval":        {s.Jobs.PartInterval, pipeline.Parts.Interval},
		"jobs.join_bytes":           {int64(s.Jobs.JoinBytes), pipeline.Parts.Joined},
		"jobs.shard_rows":           {s.Jobs.ShardRows, pipeline.Shards.Rows},
		"jobs.shard_bytes":          {int64(s.Jobs.ShardBytes), pipeline.Shards.Bytes},
		"jobs.dedup_rows":           {s.Jobs.DedupRows, pipeline.Shards.Remembered},
		"jobs.memory_budget":        {int64(s.Jobs.MemoryBudget), pipeline.MemoryBudget},
		"jobs.max_attempts":         {s.Jobs.MaxAttempts, pipeline.Rows.MaxAttempts},
		"jobs.row_patience":         {s.Jobs.RowPatience, pipeline.Rows.Patience},
		"jobs.wait_for_engine":      {s.Jobs.WaitForEngine, pipeline.Servers.Wait},
		"jobs.asked_models":         {s.Jobs.AskedModels, pipeline.Servers.MaxTrialModels},
		"jobs.probe_interval":       {s.Jobs.ProbeInterval, pipeline.Servers.ProbeInterval},
		"jobs.adoption_timeout":     {s.Jobs.AdoptionTimeout, pipeline.Ownership.AdoptionTimeout},
		"jobs.storage_patience":     {s.Jobs.StoragePatience, pipeline.StoragePatience},
		"jobs.drain_timeout":        {s.Jobs.DrainTimeout, pipeline.DrainTimeout},
		"retention.interval":        {s.Retention.Interval, pipeline.Janitor.Interval},
		"retention.batch":           {s.Retention.Batch, pipeline.Janitor.Batch},
		"retention.orphan_age":      {s.Retention.OrphanAge, pipeline.Janitor.OrphanAge},
		"retention.clock_tolerance": {s.Retention.ClockTolerance, pipeline.Janitor.ClockTolerance},
		"retention.catch_up":        {s.Retention.CatchUp, pipeline.Janitor.CatchUp},
		"estimates.sample_rows":     {s.Estimates.SampleRows, pipeline.Estimates.Rows},
		"estimates.sample_tokens":   {s.Estimates.SampleTokens, pipeline.Estimates.Tokens},
		"estimates.wait_for_engine": {s.Estimates.Wait, pipeline.Estimates.Wait},
		"inputs.max_rows":           {s.Inputs.MaxRows, limits.MaxRows},
		"inputs.max_row_bytes":      {int64(s.Inputs.MaxRowBytes), limits.MaxRowBytes},
		"inputs.max_bytes":          {int64(s.Inputs.MaxBytes), download.MaxBytes},
		"inputs.connect_timeout":    {s.Inputs.ConnectTimeout, download.ConnectTimeout},
		"inputs.stall_timeout":      {s.Inputs.StallTimeout, download.StallTimeout},
		"inputs.total_timeout":      {s.Inputs.TotalTimeout, download.TotalTimeout},
		"http.max_body":             {int64(s.HTTP.MaxBody), api.MaxBodyBytes},
		"http.max_file":             {int64(s.HTTP.MaxFile), api.MaxFileBytes},
		"http.requests_per_minute":  {s.HTTP.RequestsPerMinute, api.RequestsPerMinute},
		"http.max_keys":             {s.HTTP.MaxKeys, api.MaxKeys},
		"http.max_streams":          {s.HTTP.MaxStreams, api.MaxStreams},
		"quotas[1].row_quota":       {*s.Quotas[1].RowQuota, api.Quotas[1].RowQuota},
		"quotas[0].token_quota":     {*s.Quotas[0].TokenQuota, api.Quotas[0].TokenQuota},
		"store.prefix":              {s.Store.Prefix, redis.Config{}.WithDefaults().Prefix},
		"discover.addresses":        {strings.Join(s.Discover.Addresses, " "), strings.Join(finder.Addresses, " ")},
		"discover.interval":         {s.Discover.Interval, finder.Interval},
		"discover.timeout":          {s.Discover.Timeout, finder.Timeout},
		"webhooks.retries":          {fmt.Sprint(s.Webhooks.Retries), fmt.Sprint([]time.Duration(webhook.DefaultSchedule()))},
		"simulator.ttft":            {s.Simulator.TTFT, profile.TimeToFirstToken},
		"simulator.per_token":       {s.Simulator.PerToken, profile.TimePerToken},
		"simulator.slots":           {s.Simulator.Slots, profile.Slots},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, the part's own default is %v", name, pair[0], pair[1])
		}
	}
}
