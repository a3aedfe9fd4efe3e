package jsonpreserve_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/internal/must"
)

// A thing has every kind of member that records have.
type thing struct {
	base
	ID     string            `json:"id"`
	Note   string            `json:"note,omitempty"`
	One    *inner            `json:"one"`
	Two    inner             `json:"two,omitzero"`
	Named  map[string]inner  `json:"named,omitempty"`
	List   []inner           `json:"list,omitempty"`
	Free   map[string]any    `json:"free,omitempty"`
	Raw    json.RawMessage   `json:"raw,omitempty"`
	At     time.Time         `json:"at"`
	Words  map[string]string `json:"words,omitempty"`
	Secret string            `json:"-"`
}

type base struct {
	ID    string `json:"id"` // hidden by the field of thing
	Count int    `json:"count"`
}

type inner struct {
	Key  string  `json:"key"`
	Size int     `json:"size,omitempty"`
	Deep *deeper `json:"deep,omitempty"`
}

type deeper struct {
	X int `json:"x"`
}

// rewrite applies change to a stored document and returns the new document.
func rewrite(t *testing.T, stored string, change func(*thing)) string {
	t.Helper()
	var v thing
	must.Succeed(t, jsonpreserve.Decode(stored, &v))
	change(&v)
	raw := must.Get(jsonpreserve.Rewrite([]byte(stored), v))(t)
	return string(raw)
}

func TestUnknownMembersSurviveARewrite(t *testing.T) {
	t.Parallel()
	const at = `"at":"2026-01-02T03:04:05Z","count":0,"id":"a"` // the members that are always present, sorted
	for _, tt := range []struct {
		name, stored string
		change       func(*thing)
		want         string
	}{
		{"at the top", `{` + at + `,"new":{"a":[1,2.50,{}]}}`, func(v *thing) { v.Count = 2 }, `{"at":"2026-01-02T03:04:05Z","count":2,"id":"a","new":{"a":[1,2.50,{}]},"one":null}`},
		{"numbers as they were", `{` + at + `,"new":[12345678901234567890,1e-400,null,[],{}]}`, func(*thing) {}, `{` + at + `,"new":[12345678901234567890,1e-400,null,[],{}],"one":null}`},
		{"in a struct", `{` + at + `,"two":{"key":"k","new":1,"deep":{"x":1,"y":2}}}`, func(v *thing) { v.Two.Deep.X = 7 }, `{` + at + `,"one":null,"two":{"deep":{"x":7,"y":2},"key":"k","new":1}}`},
		{"in a struct that was empty", `{` + at + `,"two":{"new":1}}`, func(v *thing) { v.Two.Key = "k" }, `{` + at + `,"one":null,"two":{"key":"k","new":1}}`},
		{"in a struct that stays empty", `{` + at + `,"two":{"new":1}}`, func(*thing) {}, `{` + at + `,"one":null,"two":{"new":1}}`},
		{"behind a pointer", `{` + at + `,"one":{"key":"k","new":1}}`, func(v *thing) { v.One = &inner{Key: "other"} }, `{` + at + `,"one":{"key":"other","new":1}}`},
		{"not behind null", `{` + at + `,"new":3,"one":{"key":"k","new":1}}`, func(v *thing) { v.One = nil }, `{` + at + `,"new":3,"one":null}`},
		{
			"in a map, by key", `{` + at + `,"named":{"a":{"key":"1","new":1},"b":{"key":"2","new":2}}}`, func(v *thing) { delete(v.Named, "a"); v.Named["c"] = inner{Key: "3"} },
			`{` + at + `,"named":{"b":{"key":"2","new":2},"c":{"key":"3"}},"one":null}`,
		},
		{
			"in a list, by the first member", `{` + at + `,"list":[{"key":"a","new":1},{"key":"b","new":2}]}`, func(v *thing) { v.List = []inner{{Key: "c"}, {Key: "b", Size: 9}} },
			`{` + at + `,"list":[{"key":"c"},{"key":"b","new":2,"size":9}],"one":null}`,
		},
		{
			"in a list, equal elements first", `{` + at + `,"list":[{"key":"a","new":1},{"key":"a","size":2,"new":2},{"key":"a","size":2,"new":3}]}`, func(v *thing) { v.List = v.List[1:] },
			`{` + at + `,"list":[{"key":"a","new":2,"size":2},{"key":"a","new":3,"size":2}],"one":null}`,
		},
		{"known members are removed", `{` + at + `,"note":"n","new":1}`, func(v *thing) { v.Note = "" }, `{` + at + `,"new":1,"one":null}`},
		{
			"what has no type is replaced", `{` + at + `,"free":{"a":1,"b":2},"raw":{"b":1,"a":2},"new":1}`, func(v *thing) { v.Free, v.Raw = map[string]any{"a": 5}, json.RawMessage(`{"z":1,"b":6}`) },
			`{"at":"2026-01-02T03:04:05Z","count":0,"free":{"a":5},"id":"a","new":1,"one":null,"raw":{"z":1,"b":6}}`,
		},
		{"names in other case are known", `{` + at + `,"NOTE":"n","Named":{"a":{"KEY":"k","new":1}}}`, func(v *thing) { v.Note = "m" }, `{` + at + `,"named":{"a":{"key":"k","new":1}},"note":"m","one":null}`},
		{"an empty member in other case is known", `{` + at + `,"NOTE":"","new":1}`, func(v *thing) { v.Note = "m" }, `{` + at + `,"new":1,"note":"m","one":null}`},
		{"fields that are never written are unknown", `{` + at + `,"Secret":2,"-":3}`, func(*thing) {}, `{"-":3,"Secret":2,` + at + `,"one":null}`},
		{"nothing unknown", `{` + at + `,"note":"n"}`, func(*thing) {}, `{"count":0,"id":"a","note":"n","one":null,"at":"2026-01-02T03:04:05Z"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, rewrite(t, tt.stored, tt.change)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatOverlapsSurvives adds an unknown member to every object of a random document.
// Every object that the next version of the document still has keeps the member, and
// known members have their new values.
func TestWhatOverlapsSurvives(t *testing.T) {
	t.Parallel()
	keys := rapid.SampledFrom([]string{"", "a", "B", "long name"})
	inners := rapid.Custom(func(t *rapid.T) inner {
		i := inner{Key: keys.Draw(t, "key"), Size: rapid.IntRange(0, 2).Draw(t, "size")}
		if rapid.Bool().Draw(t, "deep") {
			i.Deep = &deeper{rapid.Int().Draw(t, "x")}
		}
		return i
	})
	things := rapid.Custom(func(t *rapid.T) thing {
		return thing{
			ID: rapid.String().Draw(t, "id"), Note: keys.Draw(t, "note"), One: rapid.Ptr(inners, true).Draw(t, "one"), Two: inners.Draw(t, "two"),
			Named: rapid.MapOf(keys, inners).Draw(t, "named"), List: rapid.SliceOfDistinct(inners, func(i inner) string { return i.Key }).Draw(t, "list"),
			Words: rapid.MapOf(keys, rapid.String()).Draw(t, "words"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := tree(t, things.Draw(t, "before")), things.Draw(t, "after")
		had := map[string]bool{}
		objects(before, "", func(path string, object map[string]any) { had[path], object["new"] = true, path })
		stored := must.Get(json.Marshal(before))(t)
		rewritten := must.Get(jsonpreserve.Rewrite(stored, after))(t)
		want := tree(t, after)
		objects(want, "", func(path string, object map[string]any) {
			if had[path] {
				object["new"] = path
			}
		})
		if diff := cmp.Diff(want, tree(t, json.RawMessage(rewritten))); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// tree returns a value's JSON as a tree.
func tree(t *rapid.T, v any) (decoded any) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = jsonpreserve.Decode(raw, &decoded)
	}
	must.Succeed(t, err)
	return decoded
}

// objects visits the JSON objects that come from structs.
func objects(v any, path string, visit func(path string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if path != "" || name != "words" {
				objects(member, path+"/"+name, visit)
			}
		}
		if path != "/named" {
			visit(path, v)
		}
	case []any:
		for _, element := range v {
			if object, is := element.(map[string]any); is {
				objects(element, fmt.Sprintf("%s/%v", path, object["key"]), visit)
			}
		}
	}
}

// FuzzRewrite checks that a rewrite without changes keeps known members, and unknown
// members at the top.
func FuzzRewrite(f *testing.F) {
	f.Add(`{"id":"a","new":1,"two":{"key":"k","new":{"x":[1,{}]}},"named":{"f":{"key":"f","new":[]}},"list":[{"key":"a","new":1},{"key":"b"}]}`)
	f.Add(`{"ID":"a","one":{"deep":{"x":1,"y":{"z":null}}},"free":{"q":1e400},"raw":[1,2],"new":"\ud83d\ude00","at":"2026-01-02T03:04:05.6Z"}`)
	f.Add(`{"list":[{"new":1},null,{"KEY":"a","new":2}],"named":{"":{"":0}},"":1,"new":[[{}]]}`)
	f.Add(`{"two":{"new":1},"two":{"key":"a"},"TWO":{"size":2},"words":{"a":"b","A":"c"},"new":{}}`)
	f.Fuzz(func(t *testing.T, stored string) {
		var v, again thing
		if err := jsonpreserve.Decode(stored, &v); err != nil || !json.Valid([]byte(stored)) {
			t.Skip()
		}
		once := must.Get(jsonpreserve.Rewrite([]byte(stored), v))(t)
		if err := jsonpreserve.Decode(once, &again); err != nil {
			t.Fatalf("%v: %s", err, once)
		}
		known := must.Get(json.Marshal(v))(t)
		if same, err := json.Marshal(again); err != nil || string(same) != string(known) {
			t.Errorf("what is known differs in %s: it is %s, %v; want %s", once, same, err, known)
		}
		var before, after map[string]any
		must.Succeed(t, errors.Join(jsonpreserve.Decode(stored, &before), jsonpreserve.Decode(once, &after)))
		for name, value := range before {
			if diff := cmp.Diff(value, after[name]); diff != "" && !knows(t, name) {
				t.Errorf("unknown member %q (-want +got):\n%s", name, diff)
			}
		}
	})
}

// knows reports whether encoding/json knows a member of a thing.
func knows(t *testing.T, name string) bool {
	t.Helper()
	raw := must.Get(json.Marshal(map[string]any{name: nil}))(t)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(new(thing)) == nil
}

func TestRewriteOfNothingIsAnEncoding(t *testing.T) {
	t.Parallel()
	v := thing{ID: "a"}
	want := must.Get(json.Marshal(v))(t)
	for _, stored := range []string{"", "null", "{}", string(want)} {
		if got, err := jsonpreserve.Rewrite([]byte(stored), v); err != nil || string(got) != string(want) {
			t.Errorf("over %q: %s, %v", stored, got, err)
		}
	}
	for _, stored := range []string{"{", "[]", `"text"`, `{"new":}`, `{"new":1`, `{"id":1}`} {
		if got, err := jsonpreserve.Rewrite([]byte(stored), v); err == nil {
			t.Errorf("over %q: %s, want an error", stored, got)
		}
	}
	if _, err := jsonpreserve.Rewrite([]byte("{}"), func() {}); err == nil {
		t.Error("what cannot be encoded was")
	}
}
