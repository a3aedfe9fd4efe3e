package http

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
)

func uploadOf(name string, size int) string {
	return fmt.Sprintf(`{"bytes":%d,"filename":%q,"purpose":"user_data","mime_type":"text/csv"}`, size, name)
}

// fieldOf returns a form with one file in a field.
func fieldOf(field, name, text string) string {
	return fmt.Sprintf("--edge\r\nContent-Disposition: form-data; name=%q; filename=%q\r\n\r\n%s\r\n--edge--\r\n", field, name, text)
}

// begun starts an upload and returns its id. It sends one part unless part is empty.
func (w *world) begun(name, part string) string {
	w.Helper()
	id := w.do("POST", "/v1/uploads", uploadOf(name, max(1, len(part)))).want(200).json()["id"].(string)
	if part != "" {
		w.sent(id, part)
	}
	return id
}

// sent sends a part and returns its id.
func (w *world) sent(upload, text string) string {
	w.Helper()
	return w.do("POST", "/v1/uploads/"+upload+"/parts", fieldOf("data", "part", text), "Content-Type", formType).want(200).json()["id"].(string)
}

func (w *world) completed(upload, sum string, parts ...string) *answered {
	w.Helper()
	ids := make([]string, len(parts))
	for i, part := range parts {
		ids[i] = fmt.Sprintf("%q", part)
	}
	return w.do("POST", "/v1/uploads/"+upload+"/complete", `{"part_ids":[`+strings.Join(ids, ",")+`],"md5":"`+sum+`"}`)
}

func TestUploads_BecomeFiles(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const text = "id,text\n1,a\n2,b\n"
	made := w.do("POST", "/v1/uploads", uploadOf("rows.csv", len(text))).want(200).json()
	id := made["id"].(string)
	if made["status"] != "pending" || made["file"] != nil || made["expires_at"].(float64)-made["created_at"].(float64) != 24*3600 {
		t.Errorf("got %v", made)
	}
	second, lost, first := w.sent(id, text[5:]), w.sent(id, text[:5]), w.sent(id, text[:5])
	if parts := w.get("/v1/uploads/" + id).want(200).json()["parts"].([]any); len(parts) != 3 || parts[1].(map[string]any)["id"] != lost {
		t.Errorf("parts %v", parts)
	}
	sum := md5.Sum([]byte(text))
	right := hex.EncodeToString(sum[:])
	for _, tt := range []struct {
		sum   string
		parts []string
		param string
	}{
		{right, []string{first}, "part_ids"},                      // too few bytes
		{right, []string{first, second, lost}, "part_ids"},        // too many bytes
		{right, []string{first, first, second}, "part_ids"},       // the same part twice
		{right, []string{first, "part_of_nobody"}, "part_ids"},    // not a part of this upload
		{right, []string{second, first}, "md5"},                   // in another order
		{strings.Repeat("0", 32), []string{first, second}, "md5"}, // wrong checksum
	} {
		if _, param := w.completed(id, tt.sum, tt.parts...).refused(400); param != tt.param {
			t.Errorf("%v: param %v, want %s", tt.parts, param, tt.param)
		}
	}
	done := w.completed(id, strings.ToUpper(right), first, second).want(200).json()
	file := done["file"].(map[string]any)
	if done["status"] != "completed" || file["filename"] != "rows.csv" || file["bytes"] != float64(len(text)) || file["purpose"] != "user_data" {
		t.Errorf("got %v", done)
	}
	if again := w.completed(id, "", first, second).want(200).json()["file"].(map[string]any); again["id"] != file["id"] {
		t.Errorf("repeated: %v", again)
	}
	if got := w.get("/v1/files/" + file["id"].(string) + "/content").want(200).text; string(got) != text {
		t.Errorf("content %q", got)
	}
	if parts, err := w.bucket.List(t.Context(), layout.UploadPartsPrefix(id)); err != nil || len(parts) != 0 {
		t.Errorf("parts %v, %v", parts, err)
	}
	for _, step := range []string{"parts", "cancel"} {
		if code, _ := w.do("POST", "/v1/uploads/"+id+"/"+step, fieldOf("data", "x", "x"), "Content-Type", formType).refused(400); code != "upload_completed" {
			t.Errorf("%s: code %v", step, code)
		}
	}
}

func TestUploads_EndWithoutAFile(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := setup(t, func(c *Config) { c.Now, c.MaxUploadBytes, c.MaxFileBytes = func() time.Time { return now }, 100, 50 })
	id := w.begun("a", "abc")
	for range 2 {
		if got := w.do("POST", "/v1/uploads/"+id+"/cancel", "").want(200).json(); got["status"] != "cancelled" {
			t.Errorf("got %v", got)
		}
	}
	if code, _ := w.completed(id, "", "part").refused(400); code != "upload_cancelled" {
		t.Errorf("code %v", code)
	}
	id = w.begun("b", "abc")
	now = now.Add(layout.UploadLife + time.Second)
	if code, _ := w.completed(id, "", "part").refused(400); code != "upload_expired" {
		t.Errorf("code %v", code)
	}
	for body, param := range map[string]string{
		uploadOf("a", 101): "bytes", uploadOf("a", 0): "bytes", uploadOf("", 1): "filename",
		`{"bytes":1,"filename":"a","purpose":"vision"}`:                                                     "purpose",
		`{"bytes":1,"filename":"a","purpose":"batch","expires_after":{"anchor":"created_at","seconds":10}}`: "expires_after",
	} {
		if _, got := w.do("POST", "/v1/uploads", body).refused(400); got != param {
			t.Errorf("%s: param %v", body, got)
		}
	}
	id = w.begun("c", "")
	if code, _ := w.do("POST", "/v1/uploads/"+id+"/parts", fieldOf("data", "x", strings.Repeat("x", 51)), "Content-Type", formType).refused(413); code != "file_too_large" {
		t.Errorf("code %v", code)
	}
	if _, param := w.do("POST", "/v1/uploads/"+id+"/parts", fieldOf("file", "x", "x"), "Content-Type", formType).refused(400); param != "data" {
		t.Errorf("param %v", param)
	}
	for range 2 { // more than twice the size of the file and a part
		w.sent(id, strings.Repeat("x", 30))
	}
	if code, _ := w.do("POST", "/v1/uploads/"+id+"/parts", fieldOf("data", "x", "x"), "Content-Type", formType).refused(400); code != "too_many_parts" {
		t.Errorf("code %v", code)
	}
}

// A meetingBucket calls meanwhile before it opens the first part of an upload.
type meetingBucket struct {
	blob.Bucket
	once      sync.Once
	meanwhile func()
}

func (b *meetingBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	if strings.Contains(key, "/parts/") {
		b.once.Do(b.meanwhile)
	}
	return b.Bucket.Open(ctx, key)
}

// A request that completes an upload meets another request that ends the upload.
func TestUploads_EndedMeanwhile(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.begun("a", "")
	part := w.sent(id, "x")
	meets := func(meanwhile func()) *world {
		return w.beside(func(c *Config) { c.Bucket = &meetingBucket{Bucket: w.Bucket, meanwhile: meanwhile} })
	}
	var first any
	second := meets(func() { first = w.completed(id, "", part).want(200).json()["file"] }).completed(id, "", part).want(200).json()
	if second["status"] != "completed" || first == nil || !cmp.Equal(second["file"], first) {
		t.Errorf("got %v, first %v", second, first)
	}
	id = w.begun("b", "")
	part = w.sent(id, "x")
	late := meets(func() { w.do("POST", "/v1/uploads/"+id+"/cancel", "").want(200) }).completed(id, "", part)
	if code, _ := late.refused(400); code != "upload_cancelled" {
		t.Errorf("code %v", code)
	}
}

// A job of the API's own dialect can use an uploaded file, and keeps a copy.
func TestUploads_AreInputsOfJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	file := w.uploaded("rows.jsonl", `{"id":1,"text":"a"}`)
	body := `{"inputs":"file:` + file + `","column_name":"text","id_column_name":"id"}`
	record := w.record(w.submitted(body))
	if record.Spec.File != file || record.Spec.Spooled != layout.SpooledRowsKey(record.Job.ID) || record.Job.NumRows != nil {
		t.Errorf("record %+v", record)
	}
	job := w.get("/v1/jobs/" + record.Job.ID).want(200).json()["job"].(map[string]any)
	if job["input"] != "rows.jsonl" || job["input_file"] != file || job["column_name"] != "text" || job["id_column_name"] != "id" {
		t.Errorf("job %v", job)
	}
	w.do("DELETE", "/v1/files/"+file, "").want(200)
	if text := w.object(record.Spec.Spooled); string(text) != `{"id":1,"text":"a"}` {
		t.Errorf("the copy holds %s", text)
	}
	w.post(body).wantField("inputs", "which does not exist; upload it with POST /v1/files")
	w.post(`{"inputs":"file:","column_name":"text"}`).wantField("inputs", "names no file")
	if marks, err := w.bucket.List(t.Context(), layout.Spoolings); err != nil || len(marks) != 0 {
		t.Errorf("marks %v, %v", marks, err)
	}
}
