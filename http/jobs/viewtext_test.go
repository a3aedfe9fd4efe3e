package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
)

// fill sets every field below v to a unique value, counted from n. It returns the next
// count.
func fill(t *testing.T, v reflect.Value, n int) int {
	t.Helper()
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+int64(n), int64(n)*1_000).UTC()))
		return n + 1
	case json.RawMessage:
		v.SetBytes([]byte(`{"type": "object", "n": [` + string(rune('1'+n%9)) + ` ]}`))
		return n + 1
	case map[string]any:
		v.Set(reflect.ValueOf(map[string]any{
			"temperature": json.Number("0.70"), "a <b>": "x\ny & é", "stop": []any{"\"", json.Number("1e3")}, "off": false, "none": nil,
			"deep": map[string]any{"b": true, "a": json.Number("4611686018427387905")}, "float": 0.5, "int": int64(n),
		}))
		return n + 1
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text <" + string(rune('A'+n%26)) + "> \"quoted\" \\ \n é\u2029 " + string(rune('a'+n/26)))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(n) + 1)
	case reflect.Float64:
		v.SetFloat(float64(n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			n = fill(t, v.Index(i), n)
		}
		return n
	case reflect.Struct:
		for i := range v.NumField() {
			n = fill(t, v.Field(i), n)
		}
		return n
	default:
		t.Fatalf("a field is of the kind %v", v.Kind())
	}
	return n + 1
}

// TestViewAsEncoded checks that a list encodes a job exactly like all other answers.
func TestViewAsEncoded(t *testing.T) {
	t.Parallel()
	var full View
	if n := fill(t, reflect.ValueOf(&full).Elem(), 0); n < 40 {
		t.Fatalf("only %d values", n)
	}
	views := map[string]View{"empty": {}, "full": full}
	// One field at a time, to notice swapped fields.
	job := reflect.TypeFor[View]()
	for i := range job.NumField() {
		var one View
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
		views[job.Field(i).Name] = one
	}
	for name, view := range views {
		got, err := view.append([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := exchange.Encode(view)
		if err != nil {
			t.Fatal(err)
		}
		if plain(t, got[len("before"):]) != plain(t, want) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// FuzzViewAsEncoded does the same as TestViewAsEncoded for many texts and numbers. The
// bytes are equal except for a few characters with another escape.
func FuzzViewAsEncoded(f *testing.F) {
	f.Add("job-1", "a \"name\" \\ <b> & \n\t\r\x00\x1f\x7f", "max_tokens", "1e3", int64(7), 0.1, int64(1_700_000_000_123_456_789))
	f.Add("", "\u2028 \xff é\b\f", "", "-0.50", int64(-1), 1e300, int64(-1))
	f.Add("日本", "x", "stop", "0", int64(1)<<62, 1e-9, int64(0))
	f.Fuzz(func(t *testing.T, id, text, parameter, number string, count int64, cost float64, at int64) {
		when := time.Unix(0, at).UTC()
		view := View{Job: rowmill.Job{
			ID: id, Status: rowmill.Status(text), Model: text, Priority: rowmill.Priority(count), Name: &text, System: &id, Created: when, Started: &when,
			NumRows: &count, RowCounts: rowmill.RowCounts{RowsDone: count}, Warnings: []string{text, id}, Message: text,
			FailureReason: &rowmill.Failure{Message: text}, Sampling: map[string]any{parameter: text, "on": true, "list": []any{text}},
		}}
		if json.Valid([]byte(number)) && strings.Trim(number, "-+.eE0123456789") == "" {
			view.Sampling["number"] = json.Number(number)
		}
		if !math.IsNaN(cost) && !math.IsInf(cost, 0) {
			view.JobCost = (*exchange.Decimal)(&cost)
		}
		got, err := view.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := exchange.Encode(view)
		if err != nil {
			t.Fatal(err)
		}
		same := string(got) == strings.TrimSuffix(string(want), "\n")
		if all := id + text + parameter; strings.ContainsAny(all, "\b\f\u2028\u2029") || !utf8.ValidString(all) {
			same = plain(t, got) == plain(t, want)
		}
		if !same {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	})
}

// plain returns the tokens of a JSON text, one per line, so that different escapes
// compare equal.
func plain(t *testing.T, text []byte) string {
	t.Helper()
	var tokens strings.Builder
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return tokens.String()
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		fmt.Fprintf(&tokens, "%T %q\n", token, fmt.Sprint(token))
	}
}
