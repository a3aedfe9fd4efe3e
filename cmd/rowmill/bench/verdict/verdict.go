// Package verdict explains the results of `rowmill bench`: how close a deployment comes
// to the speed of its inference servers, which part would be the first to limit its
// growth, and what to change. Its functions depend only on the measurements.
package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Measurements holds the measurements of one model on a deployment.
type Measurements struct {
	Simulated bool     // servers make up their answers
	Kinds     []string // kinds of the model's servers, such as vllm
	Nodes     int      // number of nodes that have such servers

	Steps     []LoadStep       // with increasing numbers of requests in flight
	Unreached string           // why bench sent no requests to the servers directly; empty if it did
	Rising    bool             // the rate was still growing at the last step
	Direct    []float64        // rows per second of all servers together in each round, at their best number in flight
	Jobs      []JobMeasurement // one job in each round
	OtherRows int              // rows of other jobs in flight before the bench began

	Storage  []StorageTimes
	Embedded bool          // records are in the embedded store of the node
	Interval time.Duration // jobs.part_interval; 0 if it is not known
}

// A LoadStep is the rate of the servers with one number of requests in flight.
type LoadStep struct {
	InFlight int     `json:"in_flight"` // requests in flight at each server
	Rows     float64 `json:"rows_per_second"`
}

// A JobMeasurement holds the measurements of a Rowmill job that runs the same rows.
type JobMeasurement struct {
	Rows     int     `json:"rows"`
	Failed   int64   `json:"failed_rows"`
	Seconds  float64 `json:"seconds"` // from the first row of the job to its end, including the result
	Waited   float64 `json:"waited_seconds"`
	Window   int     `json:"window"`       // largest window of a server during the job
	InFlight int     `json:"in_flight"`    // largest number of rows in flight at all servers together
	Tokens   int64   `json:"tokens"`       // tokens of inputs and outputs
	Bytes    int64   `json:"result_bytes"` // size of the result as Parquet
	Problem  string  `json:"problem"`      // why there is no rate; empty if there is one
}

// Rate returns the rows per second of a job; 0 if the job has no usable rate.
func (j JobMeasurement) Rate() float64 {
	if j.Seconds <= 0 || j.Problem != "" {
		return 0
	}
	return float64(j.Rows) / j.Seconds
}

// StorageTimes holds the storage times of a node, in seconds.
type StorageTimes struct {
	Node                       string
	Commits, Syncs, Puts, Gets []float64
	ObjectBytes                int
}

// A PartCapacity says how many rows per second one part of a deployment can handle.
type PartCapacity struct {
	Name  string  `json:"part"`
	Rows  float64 `json:"rows_per_second"` // 0 if it is not known
	Nodes int     `json:"nodes"`           // for how many nodes like the measured nodes the part is fast enough; 0 if that is not known
	Basis string  `json:"basis"`           // how Rows was measured or computed
}

// A Finding is a conclusion from the measurements, with its remedy.
type Finding struct {
	Level  string `json:"level"` // OK, Note or Warn
	Text   string `json:"text"`
	Remedy string `json:"remedy"` // empty if nothing is to be done
}

// The levels of a Finding.
const (
	OK   = "ok"
	Note = "note" // the finding is about the measurement and not about the deployment
	Warn = "warn"
)

// A Verdict explains the measurements of a deployment.
type Verdict struct {
	Engines  Spread         `json:"engines_rows_per_second"`
	Rowmill  Spread         `json:"rowmill_rows_per_second"`
	Ratio    Spread         `json:"ratio"` // Rowmill's rate divided by the servers' rate, in each round
	Parts    []PartCapacity `json:"parts"`
	Findings []Finding      `json:"findings"`
}

const (
	// ingestRows is how many rows per second one node reads and counts, the lowest rate
	// that was measured on two cores: docs/scale.md. It does not come from this
	// deployment, because a bench of a minute is too short to measure it.
	ingestRows = 142_000
	// written is how many bytes are written to the bucket for each byte of a result,
	// including parts and shards: bench/README.md, Writes.
	written = 3.6

	goodRatio      = 0.9  // a lower ratio gets a warning; 1 is out of reach, because a job of a few seconds loses time at its start and its end
	maxRoundSpread = 1.25 // if the largest ratio of the rounds is more than this times the smallest, other work disturbed the rounds
	slowCommit     = 0.05 // seconds; a healthy disk or Redis takes a few milliseconds
	maxWriteShare  = 0.5  // if a write takes more than this share of jobs.part_interval, the writes of an interval delay the next
	shortJob       = 30   // seconds; a shorter job loses much of its time at its start and its end
	longer         = "--length 5m and a larger --max-rows"
)

// Explain explains measurements. It returns the Verdict.
func Explain(m Measurements) Verdict {
	rates := flatMap(m.Jobs, func(j JobMeasurement) []float64 { return []float64{j.Rate()} })
	known := func(values []float64) Spread {
		return NewSpread(slices.DeleteFunc(values, func(value float64) bool { return value == 0 }))
	}
	v := Verdict{Engines: NewSpread(m.Direct), Ratio: known(divideRounds(rates, m.Direct)), Rowmill: known(rates)}
	v.Parts = estimateCapacities(m, v)
	v.Findings = slices.Concat(measurementFindings(m), ratioFindings(m, v), engineFindings(m, v), storageFindings(m), growthFindings(m, v))
	return v
}

// flatMap calls valuesOf for each element of all, and returns the results in one list.
func flatMap[T any](all []T, valuesOf func(T) []float64) (figures []float64) {
	for _, one := range all {
		figures = append(figures, valuesOf(one)...)
	}
	return figures
}

// estimateCapacities returns how many rows per second each part of a deployment can handle. The
// servers are first.
func estimateCapacities(m Measurements, v Verdict) []PartCapacity {
	engines, basis := v.Engines, "driven directly in this run"
	if engines.N == 0 {
		engines, basis = v.Rowmill, "at least: the rate that Rowmill got from them in this run"
	}
	if engines.N == 0 || m.Nodes == 0 {
		return []PartCapacity{}
	}
	each := engines.Median / float64(m.Nodes)
	feeds := func(rows float64) int { return int(math.Min(math.Floor(rows/each), 1e9)) }
	all := []PartCapacity{
		{Name: "engines", Rows: engines.Median, Nodes: m.Nodes, Basis: basis},
		{Name: "ingest of one job", Rows: ingestRows, Nodes: feeds(ingestRows), Basis: "not of this run: one owner on two cores, docs/scale.md"},
	}
	commit := NewSpread(flatMap(m.Storage, func(s StorageTimes) []float64 { return s.Commits }))
	if commit.N > 0 && m.Interval > 0 {
		// Each node commits a part of each job once in every interval. This estimate
		// assumes that commits run one after another.
		nodes := m.Interval.Seconds() / commit.Median
		all = append(all, PartCapacity{Name: "commits", Rows: nodes * each, Nodes: feeds(nodes * each), Basis: fmt.Sprintf("of a single job: commits of %s one after another, one per node every %v", formatMillis(commit.Median), m.Interval)})
	}
	bytes := resultBytesPerRow(m.Jobs)
	speed := NewSpread(flatMap(m.Storage, func(s StorageTimes) (speeds []float64) {
		for _, seconds := range s.Puts {
			speeds = append(speeds, float64(s.ObjectBytes)/seconds)
		}
		return speeds
	}))
	if speed.N > 0 && bytes > 0 {
		rows := float64(m.Nodes) * speed.Median / (written * bytes)
		all = append(all, PartCapacity{Name: "objects", Rows: rows, Basis: fmt.Sprintf("%.1f MB/s of each node, one object after the other; %.0f bytes of result a row, written %.1f times in all", speed.Median/1e6, bytes, written)})
	}
	return all
}

// resultBytesPerRow returns the bytes of result per row; 0 if that is not known.
func resultBytesPerRow(jobs []JobMeasurement) float64 {
	var rows, bytes float64
	for _, j := range jobs {
		if j.Problem == "" && j.Bytes > 0 {
			rows, bytes = rows+float64(j.Rows), bytes+float64(j.Bytes)
		}
	}
	if rows == 0 {
		return 0
	}
	return bytes / rows
}

func formatMillis(seconds float64) string { return fmt.Sprintf("%.3g ms", 1000*seconds) }

// A findingRule is a finding, and whether its condition holds.
type findingRule struct {
	holds   bool
	finding Finding
}

// matchingFindings returns the findings of all rules that hold.
func matchingFindings(rules ...findingRule) (found []Finding) {
	for _, r := range rules {
		if r.holds {
			found = append(found, r.finding)
		}
	}
	return found
}

// firstMatchingFinding returns the finding of the first rule that holds.
func firstMatchingFinding(rules ...findingRule) []Finding {
	found := matchingFindings(rules...)
	return found[:min(1, len(found))]
}

// measurementFindings reports problems of the measurement itself.
func measurementFindings(m Measurements) []Finding {
	found := matchingFindings(
		findingRule{m.Simulated, Finding{Note, "the servers are simulated: these are not figures of a model", "start a real server, and run bench again"}},
		findingRule{m.Unreached != "", Finding{Note, "the servers were not driven directly, so there is no ratio: " + m.Unreached, "run bench on a machine that reaches them, such as their node"}},
		findingRule{m.OtherRows > 0, Finding{Note, fmt.Sprintf("%d rows of other jobs were in flight when bench began: they used a part of the servers", m.OtherRows), "run bench while nothing else runs"}},
	)
	if len(m.Steps) > 0 && m.Rising {
		found = append(found, Finding{Note, fmt.Sprintf("the servers still became faster at %d in flight each, where the climb ended: their best may be higher", m.Steps[len(m.Steps)-1].InFlight), "run bench for longer, with " + longer})
	}
	for _, j := range m.Jobs {
		found = append(found, firstMatchingFinding(
			findingRule{j.Problem != "", Finding{Warn, "a job has no figure: " + j.Problem, "repair that, and run bench again"}},
			findingRule{j.Failed > 0, Finding{Warn, fmt.Sprintf("%d of %d rows failed", j.Failed, j.Rows), "look into the log of the servers; `rowmill doctor` shows their state"}},
		)...)
	}
	return found
}

// ratioFindings reports how close Rowmill comes to the rate of the servers, and why it is
// slower.
func ratioFindings(m Measurements, v Verdict) []Finding {
	if v.Ratio.N == 0 {
		return nil
	}
	best, window, longest := FastestStep(m.Steps).InFlight, 0, 0.0
	for _, j := range m.Jobs {
		window, longest = max(window, j.Window), max(longest, j.Seconds)
	}
	narrow, short := window > 0 && window < best, longest < shortJob
	ratio := fmt.Sprintf("Rowmill reaches %.2f of the rate that the servers reach without Rowmill", v.Ratio.Median)
	tooFew := fmt.Sprintf("%s: Rowmill had at most %d rows in flight at a server; the best number is %d", ratio, window, best)
	return firstMatchingFinding(
		findingRule{v.Ratio.Most > maxRoundSpread*v.Ratio.Least, Finding{Note, fmt.Sprintf("%s, but the rounds differ, from %.2f to %.2f: something else uses these machines, and the median means little", ratio, v.Ratio.Least, v.Ratio.Most), "run bench while nothing else runs, with more --rounds and a longer --length"}},
		findingRule{v.Ratio.Median >= goodRatio, Finding{OK, ratio, ""}},
		findingRule{narrow && short, Finding{Warn, tooFew + "; in jobs of a few seconds Rowmill is still searching for this number", "run bench for longer, with " + longer + "; if this does not change, the server does not report its slots: start it with metrics"}},
		findingRule{narrow, Finding{Warn, tooFew, "let the server report its slots and its queue: --metrics of llama.cpp, and no gateway that hides /metrics"}},
		findingRule{short, Finding{Warn, fmt.Sprintf("%s: jobs of %.1f s lose time at their start, for their last part and for their result", ratio, longest), "run bench for longer, with " + longer}},
		findingRule{true, Finding{Warn, ratio + ", with as many rows in flight as the servers need", "look at the CPU of the nodes: if it is busy, give the node more cores, or move its servers to another machine, or add nodes with --join"}},
	)
}

// FastestStep returns the step with the most rows per second.
func FastestStep(steps []LoadStep) (best LoadStep) {
	for _, s := range steps {
		if s.Rows > best.Rows {
			best = s
		}
	}
	return best
}

// limits names the settings of servers that limit how many rows they run at once.
var limits = map[string]string{
	"vllm": "--max-num-seqs", "sglang": "--max-running-requests", "llama.cpp": "-np and -c", "ollama": "OLLAMA_NUM_PARALLEL",
	"rowmill-sim": "simulator.slots, or --slots of rowmill sim",
}

// engineFindings reports with how many rows in flight the servers are fastest, and which of
// their settings limit this number.
func engineFindings(m Measurements, v Verdict) []Finding {
	if v.Engines.N == 0 || m.Rising || len(m.Steps) == 0 {
		return nil
	}
	var settings []string
	for _, kind := range m.Kinds {
		if limits[kind] != "" {
			settings = append(settings, limits[kind]+" ("+kind+")")
		}
	}
	remedy := "if they have the memory, raise the number of rows that they run at once; else add servers"
	if len(settings) > 0 {
		remedy = "if they have the memory, raise " + strings.Join(settings, ", ") + "; else add servers"
	}
	return []Finding{{OK, fmt.Sprintf("the servers are fastest with %d rows in flight each; more rows do not help", FastestStep(m.Steps).InFlight), remedy}}
}

// storageFindings reports slow storage, and storage that could not be timed.
func storageFindings(m Measurements) (found []Finding) {
	faster := "bring Redis nearer to the nodes, and its file (appendfsync) on a faster disk"
	if m.Embedded {
		faster = "put data on a faster disk, best one that keeps writes through a loss of power"
	}
	for _, s := range m.Storage {
		commit, put := NewSpread(s.Commits), NewSpread(s.Puts)
		found = append(found, matchingFindings(
			findingRule{commit.N == 0, Finding{Warn, s.Node + " could not time its records", "`rowmill doctor` says why"}},
			findingRule{commit.Median > slowCommit, Finding{Warn, fmt.Sprintf("%s: a commit takes %s", s.Node, formatMillis(commit.Median)), faster}},
			findingRule{put.N == 0, Finding{Warn, s.Node + " could not time its bucket", "`rowmill doctor` says why; an object of 1 MiB may take longer than a second there"}},
			findingRule{m.Interval > 0 && put.Median > maxWriteShare*m.Interval.Seconds(), Finding{Warn, fmt.Sprintf("%s: to write an object of 1 MiB takes %s, and parts are written every %v", s.Node, formatMillis(put.Median), m.Interval), "raise jobs.part_interval, and jobs.part_bytes with it; or bring the bucket nearer"}},
		)...)
	}
	return found
}

// growthFindings names the part that limits the growth of the deployment, and from how many
// nodes on.
func growthFindings(m Measurements, v Verdict) []Finding {
	narrowest, found := slowestPart(v.Parts)
	if !found {
		return nil
	}
	if narrowest.Name == "engines" {
		beyond := slices.DeleteFunc(slices.Clone(v.Parts), func(p PartCapacity) bool { return p.Name == "engines" || p.Nodes == 0 })
		text := "the servers are the bottleneck, as they should be: more rows a second come from more of them"
		if next, more := slowestPart(beyond); more {
			text += fmt.Sprintf("; with more than %d nodes like these, by arithmetic, the bottleneck would be %s", next.Nodes, next.Name)
		}
		if m.Embedded {
			text += "; more than one node needs Redis and a shared bucket first (docs/cluster.md)"
		}
		return []Finding{{OK, text, ""}}
	}
	remedy := map[string]string{
		"ingest of one job": "split large inputs into several jobs, which several nodes read",
		"commits":           "raise jobs.part_interval; a faster disk below the records",
		"objects":           "a faster disk or bucket; more nodes, which write beside one another",
	}[narrowest.Name]
	return []Finding{{Warn, fmt.Sprintf("the bottleneck is not the servers: %s can handle %.0f rows/s, fewer than the servers", narrowest.Name, narrowest.Rows), remedy}}
}
