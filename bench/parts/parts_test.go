package parts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
)

const jobID = "job-0190f5b2-7c3e-7d4a-9b1c-3f2e1d0c9b8a"

func schema() results.Schema {
	return results.Schema{JobID: jobID, Model: "m", IDColumn: "row_id", IDType: rowmill.IDType{IDKind: rowmill.IDInt}}
}

// Columns of the files that are built from parts.
func fullColumns() []string   { return partColumns[:rowColumn] }
func subsetColumns() []string { return []string{"row_id", jobID} }
func rowsColumns() []string   { return partColumns[rowColumn:] }

type entry struct {
	row rowmill.Row
	out rowmill.RowOutput
}

// makeEntries returns n rows with texts of the given sizes in bytes, with about the
// repetition of prose. One row in a hundred has failed.
func makeEntries(n, in, out int) []entry {
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 4000)
	for i := range words {
		word := make([]byte, 2+rng.IntN(9))
		for j := range word {
			word[j] = byte('a' + rng.IntN(26))
		}
		words[i] = string(word)
	}
	text := func(size int) string {
		var b strings.Builder
		for b.Len() < size {
			x := rng.Float64()
			b.WriteString(words[int(x*x*x*float64(len(words)))] + " ")
		}
		return b.String()[:size]
	}
	entries := make([]entry, n)
	for i := range entries {
		e := &entries[i]
		e.row = rowmill.Row{Index: int64(i), Text: text(in), ID: rowmill.ID{Kind: rowmill.IDInt, Int: int64(i)}}
		e.out = rowmill.RowOutput{
			Text: text(out), Score: 100 * rng.Float64(), HasScore: true, Finish: rowmill.FinishStop,
			InputTokens: int64(in/4 + rng.IntN(50)), OutputTokens: int64(out / 4), Engine: "127.0.0.1:8000", Seconds: float64(rng.IntN(9000)) / 1000, Attempts: 1,
		}
		if i%100 == 99 {
			e.out = rowmill.RowOutput{Attempts: 3, Err: &rowmill.RowError{Code: rowmill.RowSchemaViolation, Message: "no", Raw: e.out.Text}}
		}
	}
	return entries
}

// Our side.

func ownPart(tb testing.TB, w io.Writer, s results.Schema, entries []entry) {
	p := must.Get(results.NewPartWriter(w, s))(tb)
	for i := range entries {
		must.Succeed(tb, p.Add(&entries[i].row, &entries[i].out))
	}
	must.Succeed(tb, p.Close())
}

func ownMerge(tb testing.TB, w io.Writer, parts []*io.SectionReader) {
	var sources []results.PartSource
	for _, p := range parts {
		sources = append(sources, results.PartSource{Source: p})
	}
	must.Get(results.MergeParts(tb.Context(), w, schema(), sources))(tb)
}

func ownJoin(tb testing.TB, w io.Writer, parts []*io.SectionReader, keep []string) {
	var sources []results.Source
	for _, p := range parts {
		sources = append(sources, p)
	}
	join := results.ConcatRows
	if slices.Equal(keep, fullColumns()) {
		join = func(ctx context.Context, w io.Writer, s results.Schema, parts []results.Source) (int64, error) {
			return results.ConcatParts(ctx, w, s, parts, results.Full)
		}
	}
	must.Get(join(tb.Context(), w, schema(), sources))(tb)
}

func ownSubset(tb testing.TB, w io.Writer, full *io.SectionReader) {
	must.Succeed(tb, results.WriteSubset(tb.Context(), w, full, schema(), results.FileVariant{}))
}

// The input files of both sides.

// inFile returns the output of write as a file.
func inFile(tb testing.TB, write func(w io.Writer)) *io.SectionReader {
	tb.Helper()
	var content bytes.Buffer
	write(&content)
	f := must.Get(os.CreateTemp(tb.TempDir(), ""))(tb)
	tb.Cleanup(func() { _ = f.Close() })
	must.Get(f.Write(content.Bytes()))(tb)
	return io.NewSectionReader(f, 0, int64(content.Len()))
}

// pair holds files of both sides with the same rows.
type pair struct{ own, library []*io.SectionReader }

func (p *pair) add(tb testing.TB, entries []entry) {
	p.own = append(p.own, inFile(tb, func(w io.Writer) { ownPart(tb, w, schema(), entries) }))
	p.library = append(p.library, inFile(tb, func(w io.Writer) { libraryPart(tb, w, entries) }))
}

// mixedParts distributes entries over n parts at random.
func mixedParts(tb testing.TB, entries []entry, n int) (p pair) {
	rng := rand.New(rand.NewPCG(3, 4))
	dealt := make([][]entry, n)
	for _, e := range entries {
		i := rng.IntN(n)
		dealt[i] = append(dealt[i], e)
	}
	for _, entries := range dealt {
		p.add(tb, entries)
	}
	return p
}

// completeParts returns n parts, each with as many rows as entries.
func completeParts(tb testing.TB, entries []entry, n int) (p pair) {
	for i := range n {
		for j := range entries {
			entries[j].row.Index = int64(i*len(entries) + j)
		}
		p.add(tb, entries)
	}
	return p
}

// TestSameRows reads the output of both sides with the library and compares it.
func TestSameRows(t *testing.T) {
	entries := makeEntries(3000, 150, 150)
	mixed := mixedParts(t, entries, 5)
	same := func(what string, own, library func(w io.Writer)) {
		t.Helper()
		a, b := valuesOf(t, inFile(t, own)), valuesOf(t, inFile(t, library))
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%s: %d rows and %d rows of the library, which differ", what, len(a), len(b))
		}
	}
	same("part",
		func(w io.Writer) { ownPart(t, w, schema(), entries) },
		func(w io.Writer) { libraryPart(t, w, entries) })
	same("merge",
		func(w io.Writer) { ownMerge(t, w, mixed.own) },
		func(w io.Writer) { libraryMerge(t, w, mixed.library) })
	complete := completeParts(t, entries, 3)
	for _, keep := range [][]string{fullColumns(), rowsColumns()} {
		own := func(w io.Writer) { ownJoin(t, w, complete.own, keep) }
		same("join", own, func(w io.Writer) { libraryJoin(t, w, complete.library, keep) })
		same("join by pages", own, func(w io.Writer) { libraryPages(t, w, complete.library, keep) })
	}
	full := fullFiles(t, complete)
	same("subset",
		func(w io.Writer) { ownSubset(t, w, full.own[0]) },
		func(w io.Writer) { libraryJoin(t, w, full.library, subsetColumns()) })
}

// fullFiles returns files with the client's columns of complete parts.
func fullFiles(tb testing.TB, parts pair) (p pair) {
	p.own = append(p.own, inFile(tb, func(w io.Writer) { ownJoin(tb, w, parts.own, fullColumns()) }))
	p.library = append(p.library, inFile(tb, func(w io.Writer) { libraryJoin(tb, w, parts.library, fullColumns()) }))
	return p
}

// valuesOf returns the rows of a file, column names first.
func valuesOf(t *testing.T, src *io.SectionReader) []string {
	f := openLibrary(t, src)
	rows := []string{strings.Join(columnNames(f.Schema()), " ")}
	for _, g := range f.RowGroups() {
		reader := g.Rows()
		for batch := make([]parquet.Row, 64); ; {
			n, err := reader.ReadRows(batch)
			for _, row := range batch[:n] {
				rows = append(rows, fmt.Sprintf("%+v", row))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			must.Succeed(t, err)
		}
		must.Succeed(t, reader.Close())
	}
	return rows[:len(rows):len(rows)]
}

// columnNames returns the names of a schema's columns.
func columnNames(s *parquet.Schema) (names []string) {
	for _, field := range s.Fields() {
		names = append(names, field.Name())
	}
	return names
}

// sink is a writer that drops all bytes.
type sink struct{}

func (sink) Write(b []byte) (int, error) { return len(b), nil }

// side is a contender of a measurement.
type side struct {
	name string
	run  func(w io.Writer)
}

// turn is how many runs a side makes before the other side's turn. The library's pools
// survive no more than two garbage collections.
const turn = 5

// inTurns runs the sides in turns. For each it reports the processor time (user and
// system) and allocated bytes per row; the peak heap in a separate run; and the first
// side's processor time as a share of the others'.
func inTurns(b *testing.B, rows int, sides ...side) {
	cpu := make([]time.Duration, len(sides))
	allocated := make([]uint64, len(sides))
	for b.Loop() {
		for i, s := range sides {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := cpuTime(b)
			for range turn {
				s.run(sink{})
			}
			cpu[i] += cpuTime(b) - start
			runtime.ReadMemStats(&after)
			allocated[i] += after.TotalAlloc - before.TotalAlloc
		}
	}
	b.ReportMetric(0, "ns/op") // the sum of all sides is meaningless
	n := float64(rows) * float64(b.N) * turn
	for i, s := range sides {
		b.ReportMetric(float64(cpu[i].Nanoseconds())/n, s.name+"-cpu-ns/row")
		b.ReportMetric(float64(allocated[i])/n, s.name+"-B/row")
		b.ReportMetric(peak(s)/(1<<20), s.name+"-peak-MiB")
		if i > 0 {
			b.ReportMetric(cpu[0].Seconds()/cpu[i].Seconds(), sides[0].name+"/"+s.name)
		}
	}
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	must.Succeed(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak returns the largest growth of the heap during a run of s.
func peak(s side) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	heap := func() uint64 { metrics.Read(sample); return sample[0].Value.Uint64() }
	runtime.GC()
	before := heap()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range turn { // a single run may end before the first sample
			s.run(sink{})
		}
	}()
	most := before
	for {
		select {
		case <-done:
			return float64(max(most, heap()) - before)
		default:
			most = max(most, heap())
			runtime.Gosched()
		}
	}
}

func BenchmarkPart(b *testing.B) {
	for _, size := range [][2]int{{1000, 500}, {150, 150}} {
		b.Run(fmt.Sprintf("in=%d/out=%d", size[0], size[1]), func(b *testing.B) {
			entries := makeEntries(8000, size[0], size[1])
			inTurns(b, len(entries),
				side{"own", func(w io.Writer) { ownPart(b, w, schema(), entries) }},
				side{"library", func(w io.Writer) { libraryPart(b, w, entries) }})
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{2, 16, 64, 300} {
		b.Run(fmt.Sprintf("parts=%d", n), func(b *testing.B) {
			entries := makeEntries(16_384, 150, 150)
			parts := mixedParts(b, entries, n)
			inTurns(b, len(entries),
				side{"own", func(w io.Writer) { ownMerge(b, w, parts.own) }},
				side{"library", func(w io.Writer) { libraryMerge(b, w, parts.library) }})
		})
	}
}

func BenchmarkJoin(b *testing.B) {
	const n, rows = 16, 16_384
	parts := completeParts(b, makeEntries(rows, 150, 150), n)
	for name, keep := range map[string][]string{"full": fullColumns(), "rows": rowsColumns()} {
		b.Run(name, func(b *testing.B) {
			inTurns(b, n*rows,
				side{"own", func(w io.Writer) { ownJoin(b, w, parts.own, keep) }},
				side{"library", func(w io.Writer) { libraryJoin(b, w, parts.library, keep) }},
				side{"pages", func(w io.Writer) { libraryPages(b, w, parts.library, keep) }})
		})
	}
}

func BenchmarkSubset(b *testing.B) {
	const n, rows = 16, 16_384
	full := fullFiles(b, completeParts(b, makeEntries(rows, 150, 150), n))
	inTurns(b, n*rows,
		side{"own", func(w io.Writer) { ownSubset(b, w, full.own[0]) }},
		side{"library", func(w io.Writer) { libraryJoin(b, w, full.library, subsetColumns()) }},
		side{"pages", func(w io.Writer) { libraryPages(b, w, full.library, subsetColumns()) }})
}
