// Package verdict says what the figures of `rowmill bench` mean: how near a
// deployment comes to its inference servers, which part of it would be the first to
// stop it from growing, and what to change. It is functions of what was measured
// and of nothing else.
package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Measured is what was measured of one model on one deployment.
type Measured struct {
	Simulated bool     // servers make their answers up
	Kinds     []string // of the servers of the model
	Nodes     int      // that have those servers

	Steps     []Step    // with more and more in flight
	Unreached string    // why the servers were not driven directly; empty where they were
	Rising    bool      // the last step was still the best
	Direct    []float64 // rows/s of all servers at the best number in flight, round by round
	Jobs      []Job     // in the same rounds
	Strangers int       // rows of others in flight before it began

	Storage  []Storage
	Embedded bool          // records are the node's own
	Interval time.Duration // jobs.part_interval; 0 where it is not known
}

// A Step is a rate with a number of requests in flight.
type Step struct {
	InFlight int     `json:"in_flight"` // at each server
	Rows     float64 `json:"rows_per_second"`
}

// A Job is what Rowmill made of the same rows.
type Job struct {
	Rows     int     `json:"rows"`
	Failed   int64   `json:"failed_rows"`
	Seconds  float64 `json:"seconds"` // from its first row to its end, with its result
	Waited   float64 `json:"waited_seconds"`
	Window   int     `json:"window"`       // the most that one server was let have in flight
	InFlight int     `json:"in_flight"`    // the most rows in flight at all of them
	Tokens   int64   `json:"tokens"`       // in and out
	Bytes    int64   `json:"result_bytes"` // as Parquet
	Spoiled  string  `json:"problem"`      // why it has no rate; empty where it has
}

// Rate is in rows per second; 0 where there is none.
func (j Job) Rate() float64 {
	if j.Seconds <= 0 || j.Spoiled != "" {
		return 0
	}
	return float64(j.Rows) / j.Seconds
}

// Storage is what one node has timed, in seconds.
type Storage struct {
	Node                       string
	Commits, Syncs, Puts, Gets []float64
	ObjectBytes                int
}

// A Part is what one part of a deployment bears.
type Part struct {
	Name  string  `json:"part"`
	Rows  float64 `json:"rows_per_second"` // 0 where it is not known
	Nodes int     `json:"nodes"`           // of the speed of those measured that it feeds; 0 where it is not known
	Basis string  `json:"basis"`           // what the figure comes from
}

// A Finding is what to know and what to change.
type Finding struct {
	Level  string `json:"level"` // OK, Note or Warn
	Text   string `json:"text"`
	Remedy string `json:"remedy"` // empty where nothing is to be done
}

// The levels of a Finding.
const (
	OK   = "ok"
	Note = "note" // of the measurement, not of the deployment
	Warn = "warn"
)

// A Verdict is what the figures mean.
type Verdict struct {
	Engines  Spread    `json:"engines_rows_per_second"`
	Rowmill  Spread    `json:"rowmill_rows_per_second"`
	Ratio    Spread    `json:"ratio"` // round by round
	Parts    []Part    `json:"parts"`
	Findings []Finding `json:"findings"`
}

const (
	// ingestRows is what one node reads and counts in a second, the least that was
	// measured on two cores: docs/scale.md. It is no figure of this deployment, and a
	// bench of a minute cannot make one.
	ingestRows = 142_000
	// written is how often the bytes of a result are written to the bucket, parts and
	// shards included: bench/README.md, Writes.
	written = 3.6

	goodRatio  = 0.9  // a job of seconds pays for its beginning and its end
	apart      = 1.25 // rounds whose greatest ratio is more times the least measure something else
	slowCommit = 0.05 // seconds; a healthy disk or Redis takes a few milliseconds
	crowded    = 0.5  // of jobs.part_interval: share from which what is written at each delays the next
	shortJob   = 30   // seconds
	longer     = "--length 5m and a larger --max-rows"
)

// Of judges.
func Of(m Measured) Verdict {
	rates := collect(m.Jobs, func(j Job) []float64 { return []float64{j.Rate()} })
	known := func(values []float64) Spread {
		return Over(slices.DeleteFunc(values, func(value float64) bool { return value == 0 }))
	}
	v := Verdict{Engines: Over(m.Direct), Ratio: known(ratios(rates, m.Direct)), Rowmill: known(rates)}
	v.Parts = parts(m, v)
	v.Findings = slices.Concat(ofMeasurement(m), ofRatio(m, v), ofEngines(m, v), ofStorage(m), ofGrowth(m, v))
	return v
}

// collect concatenates the figures of all.
func collect[T any](all []T, of func(T) []float64) (figures []float64) {
	for _, one := range all {
		figures = append(figures, of(one)...)
	}
	return figures
}

// parts says what each part bears, the servers first.
func parts(m Measured, v Verdict) []Part {
	engines, basis := v.Engines, "driven directly in this run"
	if engines.N == 0 {
		engines, basis = v.Rowmill, "at least: what Rowmill had out of them in this run"
	}
	if engines.N == 0 || m.Nodes == 0 {
		return []Part{}
	}
	each := engines.Median / float64(m.Nodes)
	feeds := func(rows float64) int { return int(math.Min(math.Floor(rows/each), 1e9)) }
	all := []Part{
		{Name: "engines", Rows: engines.Median, Nodes: m.Nodes, Basis: basis},
		{Name: "ingest of one job", Rows: ingestRows, Nodes: feeds(ingestRows), Basis: "not of this run: one owner on two cores, docs/scale.md"},
	}
	commit := Over(collect(m.Storage, func(s Storage) []float64 { return s.Commits }))
	if commit.N > 0 && m.Interval > 0 {
		// Each node commits a part of each job every interval, here one after the other.
		nodes := m.Interval.Seconds() / commit.Median
		all = append(all, Part{Name: "commits", Rows: nodes * each, Nodes: feeds(nodes * each), Basis: fmt.Sprintf("of one job, one commit of %s after the other, one a node every %v", millis(commit.Median), m.Interval)})
	}
	bytes := perRow(m.Jobs)
	speed := Over(collect(m.Storage, func(s Storage) (speeds []float64) {
		for _, seconds := range s.Puts {
			speeds = append(speeds, float64(s.ObjectBytes)/seconds)
		}
		return speeds
	}))
	if speed.N > 0 && bytes > 0 {
		rows := float64(m.Nodes) * speed.Median / (written * bytes)
		all = append(all, Part{Name: "objects", Rows: rows, Basis: fmt.Sprintf("%.1f MB/s of each node, one object after the other; %.0f bytes of result a row, written %.1f times in all", speed.Median/1e6, bytes, written)})
	}
	return all
}

// perRow is how many bytes of result a row has; 0 where that is not known.
func perRow(jobs []Job) float64 {
	var rows, bytes float64
	for _, j := range jobs {
		if j.Spoiled == "" && j.Bytes > 0 {
			rows, bytes = rows+float64(j.Rows), bytes+float64(j.Bytes)
		}
	}
	if rows == 0 {
		return 0
	}
	return bytes / rows
}

func millis(seconds float64) string { return fmt.Sprintf("%.3g ms", 1000*seconds) }

// A rule is a finding with its condition.
type rule struct {
	holds   bool
	finding Finding
}

// every returns the findings of all rules that hold.
func every(rules ...rule) (found []Finding) {
	for _, r := range rules {
		if r.holds {
			found = append(found, r.finding)
		}
	}
	return found
}

// first returns the finding of the first rule that holds.
func first(rules ...rule) []Finding {
	found := every(rules...)
	return found[:min(1, len(found))]
}

// ofMeasurement judges the measurement itself.
func ofMeasurement(m Measured) []Finding {
	found := every(
		rule{m.Simulated, Finding{Note, "the servers are simulated: these are no figures of a model", "start a real server, and bench again"}},
		rule{m.Unreached != "", Finding{Note, "the servers were not driven directly, so there is no ratio: " + m.Unreached, "run it where it reaches them, such as on their node"}},
		rule{m.Strangers > 0, Finding{Note, fmt.Sprintf("%d rows of others were in flight when it began: they took their share", m.Strangers), "bench while nothing else runs"}},
	)
	if len(m.Steps) > 0 && m.Rising {
		found = append(found, Finding{Note, fmt.Sprintf("the servers still became faster at %d in flight each, where the climb ended: their best may be higher", m.Steps[len(m.Steps)-1].InFlight), "bench for longer, with " + longer})
	}
	for _, j := range m.Jobs {
		found = append(found, first(
			rule{j.Spoiled != "", Finding{Warn, "a job has no figure: " + j.Spoiled, "mend that, and bench again"}},
			rule{j.Failed > 0, Finding{Warn, fmt.Sprintf("%d of %d rows failed", j.Failed, j.Rows), "look into the log of the servers; `rowmill doctor` says what it sees of them"}},
		)...)
	}
	return found
}

// ofRatio explains why Rowmill is slower than the servers.
func ofRatio(m Measured, v Verdict) []Finding {
	if v.Ratio.N == 0 {
		return nil
	}
	best, window, longest := Best(m.Steps).InFlight, 0, 0.0
	for _, j := range m.Jobs {
		window, longest = max(window, j.Window), max(longest, j.Seconds)
	}
	narrow, short := window > 0 && window < best, longest < shortJob
	ratio := fmt.Sprintf("Rowmill reaches %.2f of what the servers do", v.Ratio.Median)
	tooFew := fmt.Sprintf("%s: it had %d rows in flight at a server at the most, which is best with %d", ratio, window, best)
	return first(
		rule{v.Ratio.Most > apart*v.Ratio.Least, Finding{Note, fmt.Sprintf("%s, but of the rounds one says %.2f and one %.2f: something else uses these machines, and the median says little", ratio, v.Ratio.Least, v.Ratio.Most), "bench while nothing else runs, with more --rounds and a longer --length"}},
		rule{v.Ratio.Median >= goodRatio, Finding{OK, ratio, ""}},
		rule{narrow && short, Finding{Warn, tooFew + "; in jobs of seconds it is still finding that out", "bench for longer, with " + longer + "; if it stays so, the server tells no slots: start it with its metrics on"}},
		rule{narrow, Finding{Warn, tooFew, "let the server tell its slots and its queue: --metrics of llama.cpp, and no gateway before it that hides /metrics"}},
		rule{short, Finding{Warn, fmt.Sprintf("%s: jobs of %.1f s pay for their beginning, their last part and their result", ratio, longest), "bench for longer, with " + longer}},
		rule{true, Finding{Warn, ratio + ", with as many rows in flight", "look at the processor of the nodes: one that is busy wants more cores, or its servers on another machine; more nodes with --join"}},
	)
}

// Best is the quickest step.
func Best(steps []Step) (best Step) {
	for _, s := range steps {
		if s.Rows > best.Rows {
			best = s
		}
	}
	return best
}

// limits are the settings of servers that bound how many rows they run at once.
var limits = map[string]string{
	"vllm": "--max-num-seqs", "sglang": "--max-running-requests", "llama.cpp": "-np and -c", "ollama": "OLLAMA_NUM_PARALLEL",
	"rowmill-sim": "simulator.slots, or --slots of rowmill sim",
}

// ofEngines names the settings that limit the servers.
func ofEngines(m Measured, v Verdict) []Finding {
	if v.Engines.N == 0 || m.Rising || len(m.Steps) == 0 {
		return nil
	}
	var settings []string
	for _, kind := range m.Kinds {
		if limits[kind] != "" {
			settings = append(settings, limits[kind]+" ("+kind+")")
		}
	}
	remedy := "raise the number of rows that they run at once, where memory allows, else add servers"
	if len(settings) > 0 {
		remedy = "raise " + strings.Join(settings, ", ") + " where memory allows, else add servers"
	}
	return []Finding{{OK, fmt.Sprintf("the servers are best with %d in flight each; more brings nothing", Best(m.Steps).InFlight), remedy}}
}

// ofStorage finds slow storage.
func ofStorage(m Measured) (found []Finding) {
	faster := "bring Redis nearer to the nodes, and its file (appendfsync) on a faster disk"
	if m.Embedded {
		faster = "put data on a faster disk, best one that keeps writes through a loss of power"
	}
	for _, s := range m.Storage {
		commit, put := Over(s.Commits), Over(s.Puts)
		found = append(found, every(
			rule{commit.N == 0, Finding{Warn, s.Node + " could not time its records", "`rowmill doctor` says why"}},
			rule{commit.Median > slowCommit, Finding{Warn, fmt.Sprintf("%s: a commit takes %s", s.Node, millis(commit.Median)), faster}},
			rule{put.N == 0, Finding{Warn, s.Node + " could not time its bucket", "`rowmill doctor` says why; an object of 1 MiB may take longer than a second there"}},
			rule{m.Interval > 0 && put.Median > crowded*m.Interval.Seconds(), Finding{Warn, fmt.Sprintf("%s: to write an object of 1 MiB takes %s, and parts are written every %v", s.Node, millis(put.Median), m.Interval), "raise jobs.part_interval, and jobs.part_bytes with it; or bring the bucket nearer"}},
		)...)
	}
	return found
}

// ofGrowth names the part that stops the deployment from growing, and when.
func ofGrowth(m Measured, v Verdict) []Finding {
	narrowest, found := least(v.Parts)
	if !found {
		return nil
	}
	if narrowest.Name == "engines" {
		beyond := slices.DeleteFunc(slices.Clone(v.Parts), func(p Part) bool { return p.Name == "engines" || p.Nodes == 0 })
		text := "the servers are the bottleneck, as they should be: more rows a second come from more of them"
		if next, more := least(beyond); more {
			text += fmt.Sprintf("; with more than %d nodes like these, by arithmetic, it would be %s", next.Nodes, next.Name)
		}
		if m.Embedded {
			text += "; more than one node takes Redis and a shared bucket first (docs/cluster.md)"
		}
		return []Finding{{OK, text, ""}}
	}
	remedy := map[string]string{
		"ingest of one job": "split large inputs into several jobs, which several nodes read",
		"commits":           "raise jobs.part_interval; a faster disk below the records",
		"objects":           "a faster disk or bucket; more nodes, which write beside one another",
	}[narrowest.Name]
	return []Finding{{Warn, fmt.Sprintf("the bottleneck is not the servers: %s bears %.0f rows/s, less than they give", narrowest.Name, narrowest.Rows), remedy}}
}
