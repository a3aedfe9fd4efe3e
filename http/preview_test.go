package http

import (
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// shown returns a preview in short form: the number of each row with its content.
func (w *world) shown(id, query string) (rows string, next any) {
	w.Helper()
	body := w.get("/v1/jobs/" + id + "/preview?" + query).want(200).json()
	var all []string
	for _, r := range body["rows"].([]any) {
		row := r.(map[string]any)
		text := fmt.Sprint(row["row"])
		switch row["status"] {
		case "done":
			text += "=" + fmt.Sprint(row["output"])
		case "failed":
			text += "!" + fmt.Sprint(row["code"])
		case "pending":
			text += "?"
		}
		if input := fmt.Sprintf("input %v", row["row"]); row["status"] != "pending" && row["input"] != input {
			w.Errorf("row %v has the input %v", row["row"], row["input"])
		}
		all = append(all, text)
	}
	return strings.Join(all, " "), body["next_offset"]
}

func (w *world) wantShown(id, query, want string, wantNext any) {
	w.Helper()
	got, next := w.shown(id, query)
	if diff := cmp.Diff([]any{want, wantNext}, []any{got, next}); diff != "" {
		w.Errorf("preview %s (-want +got):\n%s", query, diff)
	}
}

func TestPreview_OfASucceededJob(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.succeeded(`{"inputs":["a"]}`, answers("u", "", "x", "y", "z"))
	w.wantShown(id, "", "0=u 1!schema_violation 2=x 3=y 4=z", nil)
	w.wantShown(id, "limit=2", "0=u 1!schema_violation", 2.0)
	w.wantShown(id, "offset=1&limit=3", "1!schema_violation 2=x 3=y", 4.0)
	w.wantShown(id, "offset=4&limit=1000", "4=z", nil)
	w.wantShown(id, "offset=5", "", nil)
	w.wantShown(id, "offset=999999999", "", nil)
}

// some writes a part with some rows of a shard.
func (w *world) some(f store.Fence, shard int, first int64, within uint32, key string, texts ...string) store.Part {
	w.Helper()
	schema := schemaOf(w.record(f.JobID), rowmill.IDNull)
	part := w.part(f, schema, shard, first+int64(within), answers(texts...), key)
	var rows roaring.Bitmap
	rows.AddRange(uint64(within), uint64(within)+uint64(len(texts)))
	part.Complete = false
	part.Accepted, _ = rows.ToBytes()
	return part
}

func TestPreview_OfARunningJobComesFromItsParts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	waiting := w.submitted(`{"inputs":["a"]}`)
	w.wantShown(waiting, "", "", nil)
	f := w.running(`{"inputs":["a"]}`, 40)
	id := f.JobID
	w.wantShown(id, "limit=3", "0? 1? 2?", 3.0)
	// Shards have ten rows; no row of the second shard is done.
	w.commit(f,
		w.some(f, 2, 20, 5, "c.parquet", "x", "y"),
		w.some(f, 0, 0, 4, "b.parquet", "e", ""),
		w.some(f, 0, 0, 0, "a.parquet", "a", "b"),
		w.some(f, 2, 20, 0, "d.parquet", "s"),
	)
	w.wantShown(id, "limit=7", "0=a 1=b 2? 3? 4=e 5!schema_violation 6?", 7.0)
	w.wantShown(id, "offset=5&limit=1", "5!schema_violation", 6.0)
	w.wantShown(id, "offset=9&limit=3", "9? 10? 11?", 12.0)
	w.wantShown(id, "offset=19&limit=9", "19? 20=s 21? 22? 23? 24? 25=x 26=y 27?", 28.0)
	w.wantShown(id, "offset=38", "38? 39?", nil)
	complete := w.part(f, schemaOf(w.record(id), rowmill.IDNull), 1, 10, answers(strings.Split("0123456789", "")...), "e.parquet")
	w.commit(f, complete)
	w.wantShown(id, "offset=9&limit=3", "9? 10=0 11=1", 12.0)
	w.wantShown(id, "offset=18&limit=3", "18=8 19=9 20=s", 21.0)
	for query, want := range map[string]string{
		"limit=5":           "0=a 1=b 4=e 5!schema_violation 10=0",
		"offset=2&limit=2":  "4=e 5!schema_violation",
		"offset=18&limit=4": "18=8 19=9 20=s 25=x",
	} {
		next := map[string]any{"limit=5": 11.0, "offset=2&limit=2": 10.0, "offset=18&limit=4": 26.0}[query]
		w.wantShown(id, "done=true&"+query, want, next)
	}
	w.wantShown(id, "done=true&offset=25", "25=x 26=y", nil)
	w.wantShown(id, "done=1&offset=27", "", nil)
	w.wantShown(id, "done=1&offset=40", "", nil)
	w.wantShown(waiting, "done=1", "", nil)
	w.get("/v1/job-cancel/" + id).want(200)
	w.wantShown(id, "limit=2", "0=a 1=b", 2.0)
	w.wantShown(id, "limit=3&done=1", "0=a 1=b 4=e", 5.0)
}

func TestPreview_ReadsABoundedNumberOfParts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := w.running(`{"inputs":["a"]}`, 100)
	var parts []store.Part
	for i := range uint32(80) {
		parts = append(parts, w.some(f, 0, 0, i, fmt.Sprintf("%d.parquet", i), "x"))
	}
	w.commit(f, parts...)
	for offset, want := range map[int]any{0: 64.0, 64: nil, 10: 74.0} {
		for _, done := range []string{"", "&done=true"} {
			if _, next := w.shown(f.JobID, fmt.Sprintf("limit=1000&offset=%d%s", offset, done)); next != want {
				t.Errorf("offset %d%s: next %v, want %v", offset, done, next, want)
			}
		}
	}
}

func TestPreview_CutsLongTexts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	long := strings.Repeat("ä", results.PreviewText)
	id := w.succeeded(`{"inputs":["a"]}`, answers("x", long))
	row := w.get("/v1/jobs/" + id + "/preview?offset=1").want(200).json()["rows"].([]any)[0].(map[string]any)
	if text := row["output"].(string); row["cut"] != true || text != long[:results.PreviewText] {
		t.Errorf("cut %v, %d bytes", row["cut"], len(text))
	}
}

func TestPreview_Refuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted(`{"inputs":["a"]}`)
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "offset=-1": "offset", "offset=": "offset"} {
		w.get("/v1/jobs/"+id+"/preview?"+query).wantField(field, "integer from")
	}
	w.get("/v1/jobs/"+rowmill.NewJobID()+"/preview").wantError(404, "job_not_found", "no job")
	w.get("/v1/job-cancel/" + id).want(200)
	w.do("DELETE", "/v1/jobs/"+id+"/data", "").want(200)
	w.get("/v1/jobs/"+id+"/preview").wantError(410, "results_expired", "retention")
}
