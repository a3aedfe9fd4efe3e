package actors_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// A job that reads files of a source writes a file for each of them to its sink, with the kept columns
// and the answers, and then the list of these files. A job without files writes one file. The estimate of
// a job with a deadline writes nothing, and the job then writes all files. If the sink cannot be written, the job fails, and a job that continues it writes everything and runs no row.
func TestSink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(path, text string) {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	put("reviews/day=1/a.csv", "id,body\n1,one\n2,two\n")
	put("reviews/day=1/b.csv", "id,body\n")
	put("reviews/day=2/c.csv", "id,body\n3,three\n")
	put("blocked", "a file where a folder should be")
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: echo}
		b := setup(t, e, func(c *actors.Config) {
			c.Inputs.Retention = week
			c.Inputs.Sources = sources.New([]sources.Source{{Name: "lake", Place: sources.NewFolder(dir, nil), Writable: true}})
		})
		spec := rowmill.Spec{
			Source: "lake:reviews/day=*/*.csv", ColumnChoice: rowmill.ColumnChoice{Column: "body", IDColumn: "id", Keep: []string{"day"}, Output: "answer"},
			Sink: &rowmill.Sink{Folder: "lake:answers/", Base: "reviews/"},
		}
		read := func(folder, path, want string) {
			t.Helper()
			file := must.Get(os.Open(filepath.Join(dir, folder, path)))(t)
			defer file.Close()
			info := must.Get(file.Stat())(t)
			source := sized{file, info.Size()}
			var text strings.Builder
			must.Succeed(t, results.WriteJSONLines(t.Context(), &text, source, must.Get(results.ReadSchema(source))(t), results.FileVariant{Columns: results.AllColumns}))
			if got := text.String(); got != want {
				t.Errorf("%s has %s, want %s", path, got, want)
			}
		}
		list := func(folder, id string) (d commit.Delivery) {
			t.Helper()
			must.Succeed(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, folder, "_rowmill", id+".json")))(t), &d))
			return d
		}
		checkAll := func(folder, id string) {
			t.Helper()
			read(folder, "day=1/a.csv.parquet", `{"day":"1","id":"1","answer":"re: one"}`+"\n"+`{"day":"1","id":"2","answer":"re: two"}`+"\n")
			read(folder, "day=2/c.csv.parquet", `{"day":"2","id":"3","answer":"re: three"}`+"\n")
			if d := list(folder, id); d.Rows != 3 || fmt.Sprint(d.Files) != "[{day=1/a.csv.parquet reviews/day=1/a.csv 2 0} {day=2/c.csv.parquet reviews/day=2/c.csv 1 0}]" {
				t.Errorf("the list is %+v", d)
			}
		}
		first := b.end(b.submit(spec))
		if first.Job.Status != rowmill.StatusSucceeded {
			t.Fatalf("the job is %s: %+v", first.Job.Status, first.Job.FailureReason)
		}
		checkAll("answers", first.Job.ID)

		inline := b.end(b.submit(rowmill.Spec{Inline: []string{"four"}, ColumnChoice: rowmill.ColumnChoice{Output: "answer"}, Sink: &rowmill.Sink{Folder: "lake:answers/"}}))
		read("answers", inline.Job.ID+".parquet", `{"answer":"re: four"}`+"\n")

		sampled := spec
		sampled.Sink = &rowmill.Sink{Folder: "lake:sampled/", Base: "reviews/"}
		sampled.Estimate = true
		estimate := b.end(b.submit(sampled))
		if _, err := os.Stat(filepath.Join(dir, "sampled")); !errors.Is(err, os.ErrNotExist) || estimate.Job.Status != rowmill.StatusSucceeded {
			t.Fatalf("the estimate is %s, and its folder: %v", estimate.Job.Status, err)
		}
		sampled.Estimate, sampled.Source, sampled.Continue = false, "", &rowmill.Continuation{Job: estimate.Job.ID, Failed: true, Rest: true}
		later := b.end(b.submit(sampled))
		if later.Job.Status != rowmill.StatusSucceeded || later.Job.RowsTakenOver != 3 {
			t.Fatalf("the job after the estimate is %s, %d rows were taken over: %+v", later.Job.Status, later.Job.RowsTakenOver, later.Job.FailureReason)
		}
		checkAll("sampled", later.Job.ID)

		spec.Sink = &rowmill.Sink{Folder: "lake:blocked/", Base: "reviews/"}
		broken := b.end(b.submit(spec))
		failure(t, broken, rowmill.CodeOutputFailed)
		must.Succeed(t, os.Remove(filepath.Join(dir, "blocked")))
		before := e.calls.Load()
		again := b.end(b.resume(b.await(broken.Job.ID, func(r store.Record) bool { return r.InputUntil != nil }), false))
		if ran := e.calls.Load() - before; again.Job.Status != rowmill.StatusSucceeded || ran != 0 || again.Job.RowsTakenOver != 3 {
			t.Fatalf("the next job is %s, %d rows ran, %d were taken over: %+v", again.Job.Status, ran, again.Job.RowsTakenOver, again.Job.FailureReason)
		}
		checkAll("blocked", again.Job.ID)
	})
}

// sized is a file with its size.
type sized struct {
	*os.File
	size int64
}

func (s sized) Size() int64 { return s.size }
