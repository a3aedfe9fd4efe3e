package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

// counted returns a function that reports the server's work since the call, for each of
// n operations: commands, and bytes received, sent, and appended to its file.
func counted(b *testing.B, server *redistest.Server) (report func(n int64)) {
	b.Helper()
	names := map[string]string{
		"total_commands_processed": "commands/op", "total_net_input_bytes": "in-B/op",
		"total_net_output_bytes": "out-B/op", "aof_current_size": "file-B/op",
	}
	read := func() map[string]int64 {
		values := map[string]int64{}
		for line := range strings.SplitSeq(command(b, server, "INFO"), "\r\n") {
			name, text, _ := strings.Cut(line, ":")
			if _, wanted := names[name]; wanted {
				n := must.Get(strconv.ParseInt(text, 10, 64))(b)
				values[name] = n
			}
		}
		return values
	}
	before := read()
	return func(n int64) {
		after := read()
		for name, unit := range names {
			b.ReportMetric(float64(after[name]-before[name])/float64(n), unit)
		}
	}
}

// stored is the number of jobs in the store for the benchmarks, of ten accounts.
const stored = 20_000

func filled(b *testing.B, server *redistest.Server, over bool) *redis.Store {
	b.Helper()
	s := open(b, redis.Config{URL: server.URL()})
	storetest.FillJobs(b, s, stored, over)
	return s
}

func BenchmarkStore(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		b.Run(fsync, func(b *testing.B) {
			server := redistest.Start(b, "appendfsync "+fsync, "auto-aof-rewrite-percentage 0")
			s := filled(b, server, true)
			for _, size := range []int{1, 64} {
				b.Run(fmt.Sprintf("create %d KB", size), func(b *testing.B) {
					report := counted(b, server)
					report(storetest.TimeCreate(b, s, size<<10))
				})
			}
			b.Run("get", func(b *testing.B) { storetest.TimeGet(b, s, stored) })
			b.Run("list 100", func(b *testing.B) { storetest.TimeList(b, s) })
			b.Run("renew", func(b *testing.B) {
				session := newSession(b, s)
				storetest.MeasureLatency(b, func(int) {
					must.Succeed(b, s.RenewSession(b.Context(), session))
				})
			})
			for _, jobs := range []int{1, 16, 64} {
				b.Run(fmt.Sprintf("commit part x%d", jobs), func(b *testing.B) {
					storetest.TimeCommit(b, s, jobs, func() func(int64) { return counted(b, server) })
				})
			}
		})
	}
}

// BenchmarkOrphans lists orphans among waiting jobs and some owned jobs.
func BenchmarkOrphans(b *testing.B) {
	server := redistest.Start(b, "appendfsync everysec")
	s := filled(b, server, false)
	session := newSession(b, s)
	for i := range 1000 {
		must.Get(s.Claim(b.Context(), storetest.JobID(i), session, store.Claim{}))(b)
	}
	report := counted(b, server)
	report(storetest.TimeOrphans(b, s, true))
}

// BenchmarkPoll measures the check that a node makes each second for its subscribers:
// 1,000 open jobs of ten accounts.
func BenchmarkPoll(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, redis.Config{URL: server.URL()})
	storetest.FillJobs(b, s, 1000, false)
	storetest.TimePoll(b, s, 1000)
}
