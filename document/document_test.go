package document_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/document"
)

// A thing has every kind of member that records have.
type thing struct {
	base
	ID     string            `json:"id"`
	Note   string            `json:"note,omitempty"`
	One    *inner            `json:"one"`
	Two    inner             `json:"two"`
	Gone   *inner            `json:"gone,omitempty"`
	Named  map[string]inner  `json:"named,omitempty"`
	List   []inner           `json:"list,omitempty"`
	Free   map[string]any    `json:"free,omitempty"`
	Raw    json.RawMessage   `json:"raw,omitempty"`
	At     time.Time         `json:"at"`
	Words  map[string]string `json:"words,omitempty"`
	Plain  int
	hidden int
	Secret string `json:"-"`
}

type base struct {
	ID    string `json:"id"` // hidden by thing's
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

// rewrite decodes a document as a version does that does not know all of it,
// changes it and writes it back.
func rewrite(t testing.TB, stored string, change func(*thing)) string {
	t.Helper()
	var v thing
	if err := json.Unmarshal([]byte(stored), &v); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&v)
	}
	raw, err := document.Rewrite([]byte(stored), v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestUnknownMembersSurviveARewrite(t *testing.T) {
	t.Parallel()
	const at = `"at":"2026-01-02T03:04:05Z"`
	for _, tt := range []struct {
		name, stored string
		change       func(*thing)
		want         []string // what stands in the document then
		not          []string // and what does not
	}{
		{
			"at the top", `{"id":"a",` + at + `,"new":{"a":[1,2.50,{}]},"count":1}`, func(v *thing) { v.Count = 2 },
			[]string{`"new":{"a":[1,2.50,{}]}`, `"count":2`},
			nil,
		},
		{
			"numbers and empty values as they were", `{` + at + `,"big":12345678901234567890,"tiny":1e-400,"none":[],"empty":{},"null":null}`, nil,
			[]string{`"big":12345678901234567890`, `"tiny":1e-400`, `"none":[]`, `"empty":{}`, `"null":null`},
			nil,
		},
		{
			"in a struct", `{` + at + `,"two":{"key":"k","new":1,"deep":{"x":1,"y":2}}}`, func(v *thing) { v.Two.Deep.X = 7 },
			[]string{`"new":1`, `"deep":{"x":7,"y":2}`},
			nil,
		},
		{
			"behind a pointer", `{` + at + `,"one":{"key":"k","new":1}}`, func(v *thing) { v.One = &inner{Key: "other"} },
			[]string{`"one":{"key":"other","new":1}`},
			nil,
		},
		{
			"in a map's entries", `{` + at + `,"named":{"full":{"key":"f","new":1},"rows":{"key":"r","new":2}}}`, func(v *thing) { v.Named["more"] = inner{Key: "m"} },
			[]string{`"full":{"key":"f","new":1}`, `"more":{"key":"m"}`, `"rows":{"key":"r","new":2}`},
			nil,
		},
		{
			"not in an entry that was removed", `{` + at + `,"named":{"full":{"key":"f","new":1},"rows":{"key":"r","new":2}}}`, func(v *thing) { delete(v.Named, "full") },
			[]string{`"named":{"rows":{"key":"r","new":2}}`},
			[]string{`"new":1`},
		},
		{
			"in a list's elements by their first field", `{` + at + `,"list":[{"key":"a","new":1},{"key":"b","new":2}]}`,
			func(v *thing) { v.List = []inner{{Key: "b", Size: 9}, {Key: "c"}} },
			[]string{`"list":[{"key":"b","size":9,"new":2},{"key":"c"}]`},
			[]string{`"new":1`},
		},
		{
			"a known member that is left out is removed", `{` + at + `,"note":"n","gone":{"key":"g","new":1},"new":3}`,
			func(v *thing) { v.Note, v.Gone = "", nil },
			[]string{`"new":3`},
			[]string{"note", "gone", `"new":1`},
		},
		{
			"a null takes the place of an object", `{` + at + `,"one":{"key":"k","new":1},"new":3}`, func(v *thing) { v.One = nil },
			[]string{`"one":null`, `"new":3`},
			[]string{`"new":1`},
		},
		{
			"an object takes the place of a null", `{` + at + `,"one":null,"new":3}`, func(v *thing) { v.One = &inner{Key: "k"} },
			[]string{`"one":{"key":"k"}`, `"new":3`},
			nil,
		},
		{
			"what has no type is taken whole", `{` + at + `,"free":{"a":1,"b":2},"raw":{"a":1,"b":2}}`,
			func(v *thing) {
				v.Free = map[string]any{"a": json.Number("5")}
				v.Raw = json.RawMessage(`{"a":6}`)
			},
			[]string{`"free":{"a":5}`, `"raw":{"a":6}`},
			[]string{`"b":2`},
		},
		{
			"names are matched as they are decoded", `{` + at + `,"ID":"a","Note":"n","\u0063ount":4}`, func(v *thing) { v.Count++ },
			[]string{`"id":"a"`, `"note":"n"`, `"count":5`},
			[]string{`"ID"`, `"Note"`, `u0063`},
		},
		{
			"fields that are never written are not known", `{` + at + `,"hidden":1,"Secret":2,"-":3,"plain":4}`, nil,
			[]string{`"hidden":1`, `"Secret":2`, `"-":3`, `"Plain":4`},
			[]string{`"plain":4`},
		},
		{
			"a long name, and one beyond ASCII", `{` + at + `,"` + strings.Repeat("n", 80) + `":1,"näme":2}`, nil,
			[]string{strings.Repeat("n", 80) + `":1`, `"näme":2`},
			nil,
		},
		{"white space", " { " + at + " , \"new\" :\t[ 1 , 2 ] ,\n\"two\" : { \"more\" : true } } ", nil, []string{`"new":[ 1 , 2 ]`, `"more":true`}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := rewrite(t, tt.stored, tt.change)
			if !json.Valid([]byte(got)) {
				t.Fatalf("not JSON: %s", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s is missing in %s", want, got)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(got, not) {
					t.Errorf("%s stands in %s", not, got)
				}
			}
		})
	}
}

func TestRewriteOfNothingIsAnEncoding(t *testing.T) {
	t.Parallel()
	v := thing{ID: "a", hidden: 1}
	want, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range []string{"", "null", "{}", "[]", `"text"`, string(want)} {
		if got, err := document.Rewrite([]byte(stored), v); err != nil || !bytes.Equal(got, want) {
			t.Errorf("over %q: %s, %v", stored, got, err)
		}
	}
	for _, stored := range []string{"{", `{"new"`, `{"new":}`, `{"new":[}`, `{"new":1`, `{"id":"a`, `{"id":"\`, `{"id" "a"}`, `{"new":1,}`} {
		if got, err := document.Rewrite([]byte(stored), v); err == nil {
			t.Errorf("over %q, which is not JSON: %s", stored, got)
		}
	}
	if _, err := document.Rewrite([]byte("{}"), func() {}); err == nil {
		t.Error("what cannot be encoded was")
	}
}

// FuzzRewrite holds that a version that reads any document and writes it back
// loses nothing that it does not know, and that writing it once more changes
// nothing.
func FuzzRewrite(f *testing.F) {
	f.Add(`{"id":"a","new":1,"two":{"key":"k","new":{"x":[1,{}]}},"named":{"f":{"key":"f","new":[]}},"list":[{"key":"a","new":1},{"key":"b"}]}`)
	f.Add(`{"ID":"a","one":{"deep":{"x":1,"y":{"z":null}}},"free":{"q":1e400},"raw":[1,2],"new":"\ud83d\ude00","at":"2026-01-02T03:04:05.6Z"}`)
	f.Add(`{"list":[{"new":1},null,{"KEY":"a","new":2}],"named":{"":{"":0}},"":1}`)
	f.Fuzz(func(t *testing.T, stored string) {
		var v thing
		if err := json.Unmarshal([]byte(stored), &v); err != nil {
			t.Skip()
		}
		once, err := document.Rewrite([]byte(stored), v)
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]any
		if err := unmarshal([]byte(stored), &before); err != nil {
			t.Fatal(err)
		}
		if err := unmarshal(once, &after); err != nil {
			t.Fatalf("%v: %s", err, once)
		}
		kept(t, "", before, after, reflect.TypeFor[thing]())
		var again thing
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatal(err)
		}
		fresh, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := json.Marshal(again); err != nil || !bytes.Equal(same, fresh) {
			t.Errorf("the known members are %s, %v; want %s", same, err, fresh)
		}
		if twice, err := document.Rewrite(once, v); err != nil || !bytes.Equal(twice, once) {
			t.Errorf("written once more it is %s, %v; was %s", twice, err, once)
		}
	})
}

// unmarshal keeps numbers as they are written.
func unmarshal(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// kept demands that all members of before that a type does not know are the
// same in after. It goes by the rules of the package in the plainest way: by
// what a decoder that refuses unknown members says.
func kept(t *testing.T, path string, before, after any, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	old, isObject := before.(map[string]any)
	now, still := after.(map[string]any)
	switch {
	case !isObject || !still:
		return
	case typ.Kind() == reflect.Map && typ.Elem().Kind() == reflect.Struct:
		for name := range old {
			kept(t, path+"/"+name, old[name], now[name], typ.Elem())
		}
	case typ.Kind() == reflect.Struct:
		for name, value := range old {
			if !knows(t, typ, name) {
				if diff := cmp.Diff(value, now[name]); diff != "" {
					t.Errorf("%s/%s differs (-want +got):\n%s", path, name, diff)
				}
				continue
			}
			for at := range typ.NumField() {
				if tag, _, _ := strings.Cut(typ.Field(at).Tag.Get("json"), ","); tag == name && !folded(old, name) {
					kept(t, path+"/"+name, value, now[name], typ.Field(at).Type)
				}
			}
		}
	}
}

// folded reports whether an object has several names that are decoded as one.
func folded(object map[string]any, name string) bool {
	n := 0
	for other := range maps.Keys(object) {
		if strings.EqualFold(other, name) {
			n++
		}
	}
	return n > 1
}

// knows asks encoding/json whether a type has a member.
func knows(t *testing.T, typ reflect.Type, name string) bool {
	t.Helper()
	raw, err := json.Marshal(map[string]any{name: nil})
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(reflect.New(typ).Interface()) == nil
}

func BenchmarkRewrite(b *testing.B) {
	v := thing{ID: "a", At: time.Unix(1e9, 0).UTC(), Note: strings.Repeat("n", 500), Named: map[string]inner{}, Free: map[string]any{"seed": 1}}
	for _, name := range []string{"full", "rows", "subset"} {
		v.Named[name] = inner{Key: strings.Repeat("k", 90), Size: 5, Deep: &deeper{X: 3}}
		v.List = append(v.List, inner{Key: name, Size: 6})
	}
	plain, err := json.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	newer := append(bytes.TrimSuffix(bytes.Clone(plain), []byte("}")), `,"new":{"a":[1,2,3]}}`...)
	for _, bb := range []struct {
		name   string
		stored []byte
	}{{"encode", nil}, {"nothing_unknown", plain}, {"unknown", newer}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(plain)))
			for b.Loop() {
				if _, err := document.Rewrite(bb.stored, v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
