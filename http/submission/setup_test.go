package submission

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// grade is a Function with two inputs and defaults.
const grade = `{
	"name": "grade", "inputs": [{"name": "essay", "description": "the text"}, {"name": "level", "required": false}],
	"prompt": "Grade {{essay}} at level {{ level }}.", "system_prompt": "You are a teacher.",
	"model": "llama-3.1-8b", "json_schema": {"type": "object"}, "sampling_params": {"temperature": 0.25, "max_tokens": 100}
}`

// values has stored values in memory.
type values map[string]json.RawMessage

func (v values) GetValue(_ context.Context, name string) (json.RawMessage, int64, error) {
	if doc, found := v[name]; found {
		return doc, 1, nil
	}
	return nil, 0, rowmill.ErrNotFound
}

func (v values) PutValue(_ context.Context, name string, doc json.RawMessage, _ int64) (int64, error) {
	v[name] = doc
	return 1, nil
}

func (v values) ListValues(context.Context, string) ([]string, error) { return nil, nil }

// world is an intake with a real bucket.
type world struct {
	testing.TB
	*Parser
	bucket  *countingBucket
	servers []served.Server
}

func setup(t testing.TB, change ...func(*Parser)) *world {
	t.Helper()
	opened, err := dir.Open(dir.Config{Root: t.TempDir(), NoSync: true})
	must.Succeed(t, err)
	t.Cleanup(func() { opened.Close() })
	w := &world{TB: t, bucket: &countingBucket{Bucket: opened}}
	w.Parser = &Parser{
		Models: served.New(catalog.Default(), func() []served.Server { return w.servers }), Functions: function.Library{Values: values{}, Now: time.Now},
		Bucket: w.bucket, Now: time.Now, MaxRow: 8 << 20, MaxInline: 64 << 10,
	}
	for _, f := range change {
		f(w.Parser)
	}
	return w
}

// countingBucket counts objects and open writers.
type countingBucket struct {
	blob.Bucket
	created int // number of created objects
	writing int // writers that are neither committed nor aborted
}

type countingWriter struct {
	blob.Writer
	end func()
}

func (b *countingBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	writer, err := b.Bucket.Create(ctx, key, contentType)
	b.created++
	b.writing++
	return countingWriter{writer, sync.OnceFunc(func() { b.writing-- })}, err
}

func (w countingWriter) Commit() (blob.ObjectInfo, error) {
	w.end()
	return w.Writer.Commit()
}

func (w countingWriter) Abort() {
	w.end()
	w.Writer.Abort()
}

// take returns the record for a body, or an error.
func (w *world) take(body string) (store.Record, error) {
	w.Helper()
	sub, err := w.Read(w.Context(), strings.NewReader(body))
	if err != nil {
		return store.Record{}, err
	}
	defer sub.Close()
	job, err := sub.Check(w.Context(), "default")
	if err == nil {
		err = job.StoreRows()
	}
	if err != nil {
		return store.Record{}, err
	}
	return job.ToRecord(time.Now()), nil
}

// submitted returns the record for a body, which must be accepted.
func (w *world) submitted(body string) store.Record {
	w.Helper()
	record, err := w.take(body)
	if err != nil {
		w.Fatalf("%.200s: %v", body, err)
	}
	return record
}

// refused returns the answer for a body that must be refused.
func (w *world) refused(body string) *request.Error {
	w.Helper()
	_, err := w.take(body)
	if err == nil {
		w.Fatalf("%.200s was accepted", body)
	}
	return request.FromError(err)
}

// fields returns the messages of a refused body by field.
func (w *world) fields(body string) map[string]string {
	w.Helper()
	found := map[string]string{}
	for _, field := range w.refused(body).Fields {
		found[field.Field] = field.Message
	}
	return found
}

// wantField checks that exactly one field of a body is invalid.
func (w *world) wantField(body, field, piece string) {
	w.Helper()
	if fields := w.fields(body); len(fields) != 1 || !strings.Contains(fields[field], piece) {
		w.Fatalf("broken fields %v; want %s with %q", fields, field, piece)
	}
}

// define reads a definition, and returns its problems.
func (w *world) define(definition string) (rowmill.Function, *request.Problems) {
	w.Helper()
	body, err := request.ReadObject([]byte(definition))
	must.Succeed(w, err)
	return ReadDefinition(&body, w.Models, ""), body.Problems
}

// publish publishes a definition. It must be valid.
func (w *world) publish(definition string) {
	w.Helper()
	f, problems := w.define(definition)
	must.Succeed(w, problems.Err())
	must.Get(w.Functions.AddRevision(w.Context(), "default", f, true))(w)
}

// objects returns the keys in the bucket.
func (w *world) objects() (keys []string) {
	w.Helper()
	all, err := w.bucket.List(w.Context(), "")
	must.Succeed(w, err)
	for _, info := range all {
		keys = append(keys, info.Key)
	}
	return slices.Clip(keys)
}

// object returns the content of an object.
func (w *world) object(key string) []byte {
	w.Helper()
	object, err := w.bucket.Open(w.Context(), key)
	must.Succeed(w, err)
	defer object.Close()
	text, err := io.ReadAll(blob.NewReader(object))
	must.Succeed(w, err)
	return text
}

var errBroken = errors.New("the connection broke")
