package e2e

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"strconv"
	"testing"
)

// A job with many equal rows sends each text to the server once, also if the node is
// killed while it writes copies. Its Parquet file has all rows, as if each had run.
func TestEqualRowsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	rows := size(6_000, 6_000, 60_000)
	different := rows / 10
	textOf := func(i int) int { return i * 2654435761 >> 8 % different }
	var table bytes.Buffer
	w := csv.NewWriter(&table)
	seen := make(map[string]bool)
	err := w.Write([]string{"id", "text"})
	for i := 0; i < rows && err == nil; i++ {
		text := rowText(textOf(i))
		seen[text] = true
		err = w.Write([]string{strconv.Itoa(i), text})
	}
	if w.Flush(); err != nil || w.Error() != nil {
		t.Fatal(err, w.Error())
	}
	sim := startSimulated(t, "--slots", "32", "--ttft", "20ms", "--per-token", "500us")
	n := on(t, resumeSettings, sim).start(t)
	user := newAuthor(t, n, apiKey)
	url := serveBytes(t, table.Bytes())
	id := n.submit(t, submission{Inputs: url, Model: model, Column: "text", IDColumn: "id", Priority: 1, Dedup: true})
	n.until(t, id, "copying rows", func(r record) bool { return r.Deduplicated > 0 })
	n.kill()
	n.start(t)
	job := n.finish(t, id)
	if saved := int64(rows - len(seen)); job.Status != "succeeded" || job.RowsDone != int64(rows) || job.FailedRows != 0 || job.Deduplicated != saved {
		t.Fatalf("%+v (%+v), want %d rows saved", job, job.FailureReason, saved)
	}
	first := make(map[string][]string) // by text: output and log probability
	for i, row := range user.parquet(t, id) {
		if row[0] != strconv.Itoa(i) || row[1] != rowText(textOf(i)) || row[2] == null || row[3] == null {
			t.Fatalf("row %d is %q", i, row)
		}
		if have := first[row[1]]; have == nil {
			first[row[1]] = row
		} else if have[2] != row[2] || have[3] != row[3] {
			t.Fatalf("row %d is %q, and row %s of the same text %q", i, row, have[0], have)
		}
	}
	if len(first) != len(seen) {
		t.Errorf("the results have %d texts, want %d", len(first), len(seen))
	}
	var usage struct {
		Total struct {
			Rows         int64 `json:"rows"`
			Deduplicated int64 `json:"deduplicated_rows"`
			InputTokens  int64 `json:"input_tokens"`
		} `json:"total"`
	}
	n.call(t, http.MethodGet, "/v1/usage", nil, &usage)
	if u := usage.Total; u.Rows != int64(rows) || u.Deduplicated != job.Deduplicated || u.InputTokens != job.InputTokens {
		t.Errorf("the account used %+v, the job says %+v", u, job)
	}
	sim.stop(t)
	asked := make(map[string]int)
	again := 0
	for _, s := range sim.sightings(t) {
		if asked[s.Prompt]++; asked[s.Prompt] > 1 {
			again++
		}
	}
	if len(asked) != len(seen) {
		t.Errorf("%d texts were asked for, want %d", len(asked), len(seen))
	}
	// Repeated requests were in flight at the kill, or not yet committed: 200 ms of 32
	// slots, and rows that wait to be written.
	if most := 32*2 + len(seen)/3; again > most {
		t.Errorf("%d requests were repeated, want %d at most", again, most)
	}
	t.Logf("%d rows, %d texts, %d requests repeated after the node was killed", rows, len(seen), again)
}
