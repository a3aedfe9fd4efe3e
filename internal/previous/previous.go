// Package previous holds what this version reads and writes as JSON against
// what the version before wrote, which is kept in files. It knows nothing of
// what the documents are for.
//
// The files are written by the code of the version before: check that out, put
// the test beside it, and run it with -write-previous.
package previous

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var write = flag.Bool("write-previous", false, "write the documents of the version before, which is this one then")

// Document wants a file to be the document that the version before wrote for
// value, and demands that both versions understand each other:
//
//   - what this one writes for value has every member of the file, with its
//     value, and may have more;
//   - what this one reads from the file has lost none of it;
//   - and reads alike where a later version has added members to each object.
func Document(t *testing.T, path string, value any) {
	t.Helper()
	now, err := json.MarshalIndent(value, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(now, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	has(t, path+", as this version writes it", parse(t, before), parse(t, now))
	read := reread(t, value, before)
	has(t, path+", read and written again", parse(t, before), parse(t, read))
	future := parse(t, before)
	plant(future)
	planted, err := json.Marshal(future)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(read), string(reread(t, value, planted))); diff != "" {
		t.Errorf("%s reads differently with the members of a later version (-without +with):\n%s", path, diff)
	}
}

// reread decodes a document into a value of the type of like and encodes that.
func reread(t *testing.T, like any, doc []byte) []byte {
	t.Helper()
	into := reflect.New(reflect.TypeOf(like))
	if err := json.Unmarshal(doc, into.Interface()); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(into.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func parse(t *testing.T, doc []byte) (value any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// has demands that all of want is in got.
func has(t *testing.T, path string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: %v where an object was", path, got)
			return
		}
		for name, value := range want {
			has(t, path+"/"+name, value, object[name])
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			t.Errorf("%s: %v, want %v", path, got, want)
			return
		}
		for i := range want {
			has(t, path, want[i], list[i])
		}
	default:
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-before +now):\n%s", path, diff)
		}
	}
}

// data are the members whose objects have names that are data.
var data = []string{"artifacts", "body", "details", "json_schema", "refused", "request_extras", "sampling", "sampling_params", "schema"}

// plant adds to every object what no version has yet.
func plant(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if !slices.Contains(data, name) {
				plant(member)
			}
		}
		value["of_a_later_version"] = map[string]any{"list": []any{}, "number": json.Number("1.50")}
	case []any:
		for _, element := range value {
			plant(element)
		}
	}
}

// File returns what the version before wrote into a file, which is content
// where this is that version.
func File(t *testing.T, path string, content []byte) []byte {
	t.Helper()
	if *write {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}
