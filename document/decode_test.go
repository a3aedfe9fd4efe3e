package document_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/document"
)

// A wide thing has what else a document may be decoded into.
type wide struct {
	thing
	Maybe  *time.Time       `json:"maybe"`
	Half   float32          `json:"half"`
	Full   *float64         `json:"full"`
	Flag   bool             `json:"flag"`
	Flags  *bool            `json:"flags"`
	Small  int8             `json:"small"`
	Count  *uint32          `json:"n"`
	Any    any              `json:"any"`
	Texts  []string         `json:"texts"`
	Counts map[string]int64 `json:"counts"`
	Many   []*inner         `json:"many"`
	Bytes  []byte           `json:"bytes"`
	Num    json.Number      `json:"num"`
	Quoted struct {
		N int `json:"n,string"`
	} `json:"quoted"`
	Behind struct {
		*Pointed
	} `json:"behind"`
	Self *selfish `json:"self"`
}

type Pointed struct {
	P int `json:"p"`
}

// A selfish one holds its own kind.
type selfish struct {
	More *selfish `json:"more"`
	N    int      `json:"n"`
}

// FuzzDecode compares Decode with encoding/json, in result and in whether there
// is an error.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, ` `, `null`, `{}`, `[]`, `{"id":"a","at":"2026-01-02T03:04:05.123456789Z","maybe":null}`, `{} x`, `{"id":"a"}}`,
		`{"id":"\u00e9\n\ud83d\ude00 é","note":"` + "\xff\xfe" + `"}`, `{"id":"a` + "\n" + `"}`, `{"id":"\x"}`, `{"id":"a`,
		`{"one":{"key":"k","deep":{"x":-1}},"two":null,"gone":{}}`,
		`{"named":{"a":{"size":1},"a":{"key":"b"},"c":null},"words":{"a":"b","c":null},"counts":{"a":9223372036854775807}}`,
		`{"list":[{"key":"a"},null,{"size":2,"deep":null}],"many":[null,{"key":"a"}],"texts":["a",null,"b"]}`,
		`{"list":[],"many":[ ],"texts":[],"free":{},"words":{},"any":[]}`, `{"list":null,"free":null,"any":null,"raw":null,"texts":null}`,
		`{"free":{"seed":4611686018427387905,"t":0.7,"list":[1,"a",true,false,null,{"x":{}}]},"any":{"a":1e400}}`,
		`{"raw": {"a": [1, 2.50]} ,"new":{"a":[1,2,{"b":"\""}]}}`, `{"raw":tru}`, `{"new":01}`, `{"new":-}`, `{"new":1.}`, `{"new":1e}`, `{"new":"\u12"}`,
		`{"ID":"upper"}`, `{"id":"a","Id":"b"}`, `{"id":"a","id":"b"}`, `{"two":{"key":"a"},"two":{"size":2}}`,
		`{"small":127,"n":4294967295}`, `{"small":128}`, `{"n":-1}`, `{"small":1.0}`, `{"small":1e2}`, `{"half":1e39}`, `{"half":0.1,"full":1e308}`, `{"full":1e309}`,
		`{"flag":true,"flags":false}`, `{"flag":"true"}`, `{"id":1}`, `{"one":[]}`, `{"list":{}}`, `{"at":1}`, `{"at":"yesterday"}`, `{"at":null}`,
		`{"bytes":"YWJj"}`, `{"num":12,"quoted":{"n":"3"},"behind":{"p":4},"self":{"n":1,"more":{"n":2}}}`, `{"num":"x"}`,
		`{"a":1,}`, `{,}`, `{"a" 1}`, `{"a":1 "b":2}`, `[1,]`, `{"texts":["a",]}`, "\ufeff{}", `{"Plain":3,"plain":4}`, `{"count":5,"secret":"s","hidden":6}`,
		`{"any":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + `}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		compare[wide](t, raw)
		compare[map[string]any](t, raw)
		compare[any](t, raw)
	})
}

func compare[T any](t *testing.T, raw []byte) {
	t.Helper()
	var want, got T
	slow := json.NewDecoder(bytes.NewReader(raw))
	slow.UseNumber()
	refused := slow.Decode(&want)
	err := document.Decode(raw, &got)
	if fmt.Sprint(err) != fmt.Sprint(refused) {
		t.Fatalf("%q: %v, want %v", raw, err, refused)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%q: %+v, want %+v", raw, got, want)
	}
}

// TestDecodeKeepsNothing checks that what is decoded does not change with the text.
func TestDecodeKeepsNothing(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"id":"abc","raw":{"a":1},"free":{"k":"v"},"texts":["t"]}`)
	var got wide
	if err := document.Decode(raw, &got); err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if got.ID != "abc" || string(got.Raw) != `{"a":1}` || got.Free["k"] != "v" || got.Texts[0] != "t" {
		t.Fatalf("%+v", got)
	}
}
