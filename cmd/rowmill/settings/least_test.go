package settings

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each number, size and time has a minimum, and an error that names the setting and the
// minimum.
func TestLeastValues(t *testing.T) {
	t.Parallel()
	refused := func(flag Flag, want string) {
		t.Helper()
		_, err := Load(Sources{Environ: []string{"HOME=/home/someone"}, Flags: []Flag{flag}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %q: error %v, want %q", flag.Key, flag.Values, err, want)
		}
	}
	for key := range strings.FieldsSeq(`
		http.max_body http.max_file http.max_upload http.max_keys http.max_streams
		inputs.max_bytes inputs.max_rows inputs.max_row_bytes inputs.readers
		jobs.max_active jobs.kept_places jobs.part_bytes jobs.join_bytes jobs.shard_rows jobs.shard_bytes jobs.dedup_rows jobs.max_attempts
		retention.batch retention.catch_up estimates.sample_tokens simulator.slots tracing.queue`) {
		refused(Flag{Key: key, Values: []string{"0"}}, key+": must be above 0, is 0")
	}
	for key, least := range map[string]time.Duration{
		"inputs.connect_timeout": time.Millisecond, "inputs.stall_timeout": time.Millisecond, "inputs.total_timeout": time.Millisecond,
		"jobs.lease_ttl": time.Second, "jobs.part_interval": time.Millisecond, "jobs.row_patience": 10 * time.Millisecond,
		"jobs.wait_for_engine": 0, "jobs.probe_interval": 10 * time.Millisecond, "jobs.adoption_timeout": time.Second,
		"jobs.settle_time": time.Second, "jobs.input_retention": 0, "jobs.storage_patience": 10 * time.Millisecond, "jobs.drain_timeout": 0,
		"retention.interval": time.Second, "retention.orphan_age": time.Hour, "retention.clock_tolerance": time.Second,
		"discover.interval": 100 * time.Millisecond, "discover.timeout": 10 * time.Millisecond,
		"simulator.ttft": 0, "simulator.per_token": 0, "tracing.timeout": 10 * time.Millisecond,
	} {
		below := least - time.Microsecond
		refused(Flag{Key: key, Values: []string{below.String()}}, fmt.Sprintf("%s: must be at least %v, is %v", key, least, below))
		if _, err := Load(Sources{Environ: []string{"HOME=/home/someone"}, Flags: []Flag{{Key: key, Values: []string{least.String()}}}}); err != nil {
			t.Errorf("%s %v: %v", key, least, err)
		}
	}
	for _, key := range []string{"max_requests_per_minute", "max_tokens_per_minute"} {
		refused(Flag{Key: key, Values: []string{"-1"}}, key+": must be at least 0, is -1")
		refused(Flag{Key: "engines", Values: []string{"[{url: 'http://127.0.0.1:8000', " + key + ": -1}]"}}, "engines[0]."+key+": must be at least 0, is -1")
	}
	refused(Flag{Key: "webhooks.retries", Values: []string{"1s", "1us"}}, "webhooks.retries[1]: must be at least 1ms, is 1µs")
	s := Defaults()
	s.Jobs.Weights = map[string]int{"a": 1, "b": 0}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "jobs.weights.b: must be above 0, is 0") || strings.Contains(err.Error(), "weights.a") {
		t.Errorf("a weight of 0: %v", err)
	}
}
