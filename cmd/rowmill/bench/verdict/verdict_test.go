package verdict

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOver(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5, 3}},
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4, 4}},
	} {
		if got := NewSpread(test.values); got != test.want {
			t.Errorf("Over(%v) = %+v, want %+v", test.values, got, test.want)
		}
	}
	for spread, want := range map[Spread]string{{}: "null", {2, 1, 3, 3}: `{"median":2,"min":1,"max":3,"n":3}`} {
		if got, err := json.Marshal(spread); err != nil || string(got) != want {
			t.Errorf("%s, error %v, want %s", got, err, want)
		}
	}
}

// sound returns a healthy deployment of two nodes.
func sound() Measurements {
	fast := func(node string) StorageTimes {
		return StorageTimes{Node: node, Commits: []float64{0.002, 0.001, 0.003}, Puts: []float64{0.02, 0.01, 0.03}, Gets: []float64{0.01}, ObjectBytes: 1 << 20}
	}
	job := JobMeasurement{Rows: 1000, Seconds: 10.1, Window: 256, InFlight: 512, Bytes: 500_000}
	return Measurements{
		Kinds: []string{"vllm"}, Nodes: 2, Steps: []LoadStep{{128, 80}, {256, 100}, {512, 99}},
		Direct: []float64{100, 101, 99}, Jobs: []JobMeasurement{job, job, job},
		Storage: []StorageTimes{fast("gpu1"), fast("gpu2")}, Interval: 5 * time.Second,
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	each := func(m *Measurements, change func(*JobMeasurement)) {
		for i := range m.Jobs {
			change(&m.Jobs[i])
		}
	}
	for name, test := range map[string]struct {
		change func(*Measurements)
		want   []string // level and words of every finding; "…" means any text
	}{
		"sound": {func(*Measurements) {}, []string{"ok Rowmill reaches 0.99", "ok fastest with 256 rows in flight … --max-num-seqs (vllm)", "ok the servers are the bottleneck … more than 2500 nodes … commits"}},
		"simulated": {func(m *Measurements) { m.Simulated, m.Kinds = true, []string{"rowmill-sim"} }, []string{
			"note simulated", "ok reaches", "ok fastest with 256 … simulator.slots", "ok the servers are the bottleneck",
		}},
		"not reached": {func(m *Measurements) {
			m.Unreached, m.Direct, m.Steps = "vllm of node gpu2: it listens at http://127.0.0.1:8000", nil, nil
		}, []string{"note not driven directly … gpu2 … that reaches them", "ok the servers are the bottleneck"}},
		"others": {func(m *Measurements) { m.OtherRows = 7 }, []string{"note 7 rows of other jobs", "ok reaches", "ok fastest", "ok bottleneck"}},
		"still rising": {func(m *Measurements) { m.Rising, m.Steps = true, m.Steps[:2] }, []string{
			"note faster at 256 in flight … --length 5m", "ok reaches", "ok bottleneck",
		}},
		"rows failed": {func(m *Measurements) { m.Jobs[1].Failed = 3 }, []string{"warn 3 of 1000 rows failed", "ok reaches", "ok fastest", "ok bottleneck"}},
		"a job failed": {func(m *Measurements) { m.Jobs[0].Problem = "job-1 is failed: no server" }, []string{
			"warn job-1 is failed: no server", "ok reaches", "ok fastest", "ok bottleneck",
		}},
		"rounds that disagree": {func(m *Measurements) { m.Jobs[0].Seconds, m.Jobs[2].Seconds = 20, 8 }, []string{
			"note 0.98 … from 0.50 to 1.26 … --rounds", "ok fastest", "ok bottleneck",
		}},
		"short jobs": {func(m *Measurements) { each(m, func(j *JobMeasurement) { j.Seconds = 14 }) }, []string{
			"warn reaches 0.71 … jobs of 14.0 s … --max-rows", "ok fastest", "ok bottleneck",
		}},
		"a window that still grows": {func(m *Measurements) { each(m, func(j *JobMeasurement) { j.Seconds, j.Window = 14, 64 }) }, []string{
			"warn 64 rows in flight … best number is 256 … still searching for this number … --length", "ok fastest", "ok bottleneck",
		}},
		"a window that is too small": {func(m *Measurements) {
			each(m, func(j *JobMeasurement) { j.Rows, j.Seconds, j.Window = 10_000, 140, 64 })
		}, []string{
			"warn 64 rows in flight … best number is 256 … --metrics", "ok fastest", "ok bottleneck",
		}},
		"slow nodes": {func(m *Measurements) { each(m, func(j *JobMeasurement) { j.Rows, j.Seconds = 10_000, 140 }) }, []string{
			"warn with as many rows in flight … more cores", "ok fastest", "ok bottleneck",
		}},
		"slow Redis": {func(m *Measurements) { m.Storage[1].Commits = []float64{0.2} }, []string{
			"ok reaches", "ok fastest", "warn gpu2: a commit takes 200 ms … Redis nearer", "ok bottleneck",
		}},
		"slow disk": {func(m *Measurements) { m.Embedded, m.Storage[1].Commits = true, []float64{0.2} }, []string{
			"ok reaches", "ok fastest", "warn gpu2: a commit takes 200 ms … faster disk", "ok bottleneck … needs Redis",
		}},
		"slow bucket": {func(m *Measurements) { m.Storage[0].Puts = []float64{3} }, []string{
			"ok reaches", "ok fastest", "warn gpu1: to write an object of 1 MiB takes 3e+03 ms … jobs.part_interval", "ok bottleneck",
		}},
		"nothing timed": {func(m *Measurements) { m.Storage = []StorageTimes{{Node: "old"}} }, []string{
			"ok reaches", "ok fastest", "warn old could not time its records", "warn old could not time its bucket", "ok bottleneck",
		}},
		"objects are the bottleneck": {func(m *Measurements) { each(m, func(j *JobMeasurement) { j.Bytes = 5e9 }) }, []string{
			"ok reaches", "ok fastest", "warn objects can handle 6 rows/s … faster disk or bucket",
		}},
		"commits are the bottleneck": {func(m *Measurements) {
			m.Interval = 100 * time.Millisecond
			for i := range m.Storage {
				m.Storage[i].Commits, m.Storage[i].Puts = []float64{0.06}, []float64{0.01}
			}
		}, []string{"ok reaches", "ok fastest", "warn gpu1: a commit", "warn gpu2: a commit", "warn commits can handle 83 rows/s … jobs.part_interval"}},
		"nothing": {func(m *Measurements) { *m = Measurements{} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := sound()
			test.change(&m)
			v := Explain(m)
			for i, f := range v.Findings {
				text := f.Level + " " + f.Text + " → " + f.Remedy
				if i >= len(test.want) || !holds(text, test.want[i]) {
					t.Errorf("finding %d: %s\nwant %q", i, text, test.want[min(i, len(test.want)-1):])
				}
			}
			if len(v.Findings) < len(test.want) {
				t.Errorf("not found: %q", test.want[len(v.Findings):])
			}
		})
	}
}

// holds reports whether a text begins with the first word and contains the others in
// order. "…" means any text.
func holds(text, words string) bool {
	level, rest, _ := strings.Cut(words, " ")
	text, found := strings.CutPrefix(text, level+" ")
	for _, word := range strings.Split(rest, " … ") {
		i := strings.Index(text, word)
		if i < 0 {
			return false
		}
		text = text[i+len(word):]
	}
	return found
}

// The capacity of each part follows from the measurements.
func TestOf_Parts(t *testing.T) {
	t.Parallel()
	v := Explain(sound())
	want := []PartCapacity{
		{Name: "engines", Rows: 100, Nodes: 2},
		{Name: "ingest of one job", Rows: ingestRows, Nodes: 2840},
		{Name: "commits", Rows: 125_000, Nodes: 2500}, // 2 ms each within 5 s, for 50 rows/s each
		{Name: "objects", Rows: 2 * (1 << 20) / 0.02 / (3.6 * 500)},
	}
	same := func(a, b PartCapacity) bool {
		return a.Name == b.Name && a.Nodes == b.Nodes && a.Rows > 0.999*b.Rows && a.Rows < 1.001*b.Rows && a.Basis != ""
	}
	if !slices.EqualFunc(v.Parts, want, same) {
		t.Errorf("%+v\nwant %+v", v.Parts, want)
	}
	if v.Ratio.N != 3 || v.Ratio.Median < 0.98 || v.Ratio.Median > 1 {
		t.Errorf("ratio %+v", v.Ratio)
	}
	alone := sound()
	alone.Direct = nil
	if v := Explain(alone); v.Ratio.N != 0 || v.Engines.N != 0 || !strings.HasPrefix(v.Parts[0].Basis, "at least") {
		t.Errorf("without servers that were driven: %+v", v)
	}
}
