package results

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// TestRowFilter_Selects tests single conditions.
func TestRowFilter_Selects(t *testing.T) {
	t.Parallel()
	object := `{"label":"neg","score":3,"ok":true,"tags":["a","b"],"note":"say \"neg\"","none":null,"in":{"label":"pos"}}`
	thought := `{"reasoning_content":"pos?","content":"{\"label\":\"neg\"}"}`
	for _, test := range []struct {
		filter RowFilter
		output string
		want   bool
	}{
		{RowFilter{}, "x", true},
		{RowFilter{Text: "WÖRT"}, "ein wört", true},
		{RowFilter{Text: "input"}, "x", true},
		{RowFilter{Text: "other"}, "x", false},
		{RowFilter{Finish: "stop"}, "x", true},
		{RowFilter{Finish: "length"}, "x", false},
		{RowFilter{Code: "schema_violation"}, "x", false},
		{RowFilter{Where: []PropertyValue{{"label", "neg"}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"label", "pos"}}}, object, false},
		{RowFilter{Where: []PropertyValue{{"label", "neg"}}}, thought, true},
		{RowFilter{Where: []PropertyValue{{"label", "pos"}}}, thought, false},
		{RowFilter{Where: []PropertyValue{{"score", "3"}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"score", "3.0"}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"score", "4"}}}, object, false},
		{RowFilter{Where: []PropertyValue{{"ok", "true"}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"none", "null"}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"tags", "b"}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"tags", "c"}}}, object, false},
		{RowFilter{Where: []PropertyValue{{"note", `say "neg"`}}}, object, true},
		{RowFilter{Where: []PropertyValue{{"in", "pos"}}}, object, false},
		{RowFilter{Where: []PropertyValue{{"label", "neg"}, {"ok", "false"}}}, object, false},
		{RowFilter{Where: []PropertyValue{{"", "Positive"}}}, " Positive\n", true},
		{RowFilter{Where: []PropertyValue{{"", "Positive"}}}, "Positive!", false},
		{RowFilter{Where: []PropertyValue{{"label", "neg"}}}, `["neg"]`, false},
		{RowFilter{Where: []PropertyValue{{"label", "neg"}}}, "neg", false},
	} {
		if got := test.filter.selects("an input", test.output, "stop", ""); got != test.want {
			t.Errorf("%+v selects %s: %v", test.filter, test.output, got)
		}
	}
	failed := RowFilter{Code: "schema_violation"}
	if !failed.selects("an input", "", "", "schema_violation") {
		t.Error("a failed row is not found by its code")
	}
}

// TestSearchResults compares searches in files with the same filter over all rows.
func TestSearchResults(t *testing.T) {
	t.Parallel()
	for name, s := range schemas() {
		all := sampleEntries(s, 0, 3000)
		part := writePart(t, s, all)
		for _, filter := range []RowFilter{
			{},
			{Text: "29"},
			{Finish: "length"},
			{Code: "schema_violation"},
			{Text: "99", Finish: "stop"},
			{Where: []PropertyValue{{"", all[7].out.Text}}},
		} {
			var want []int64
			for _, e := range all[5:] {
				code := ""
				if e.out.Err != nil {
					code = e.out.Err.Code
				}
				if filter.selects(e.row.Text, e.out.Text, string(e.out.Finish), code) {
					want = append(want, e.row.Index)
				}
			}
			var got []int64
			search := RowSearch{Filter: filter, From: 5, Visit: func(row *rowmill.Row, out *rowmill.RowOutput) error {
				if row.Text != all[row.Index].row.Text || out.Failed() != all[row.Index].out.Failed() {
					t.Errorf("%s %+v: row %d has the content of another row", name, filter, row.Index)
				}
				got = append(got, row.Index)
				return nil
			}}
			must.Succeed(t, search.SearchResults(t.Context(), part, part))
			if !slices.Equal(got, want) || search.Next != 3000 {
				t.Errorf("%s %+v: found %d rows of %d, next is %d", name, filter, len(got), len(want), search.Next)
			}
		}
	}
}

// TestRowSearch_Ends tests that a search ends at its limits and where the visitor has enough.
func TestRowSearch_Ends(t *testing.T) {
	t.Parallel()
	visited := 0
	many := RowSearch{Filter: RowFilter{Text: "none"}, From: 10, Visit: func(*rowmill.Row, *rowmill.RowOutput) error { visited++; return nil }}
	n, err := int64(0), error(nil)
	for ; err == nil; n++ {
		err = many.AddRow(&rowmill.Row{Index: n}, &rowmill.RowOutput{})
	}
	if !errors.Is(err, ErrEnough) || many.Next != maxSearchRows+10 || visited != 0 {
		t.Errorf("a search of short rows ends with %v at row %d after %d visits", err, many.Next, visited)
	}
	large := RowSearch{Filter: RowFilter{Code: "none"}}
	text := strings.Repeat("x", maxSearchBytes/4)
	for n, err = 0, nil; err == nil; n++ {
		err = large.AddRow(&rowmill.Row{Index: n, Text: text}, &rowmill.RowOutput{})
	}
	if !errors.Is(err, ErrEnough) || large.Next != 4 {
		t.Errorf("a search of long rows ends with %v at row %d", err, large.Next)
	}
	one := RowSearch{Visit: func(*rowmill.Row, *rowmill.RowOutput) error { return ErrEnough }}
	if err := one.AddRow(&rowmill.Row{Index: 4}, &rowmill.RowOutput{}); !errors.Is(err, ErrEnough) || one.Next != 5 {
		t.Errorf("a search of one row ends with %v at row %d", err, one.Next)
	}
}

// BenchmarkSearchResults searches a million rows for a value that no row has.
func BenchmarkSearchResults(b *testing.B) {
	const rows = 1_000_000
	var file bytes.Buffer
	w := must.Get(NewPartWriter(&file, Schema{JobID: "j", Model: "m"}))(b)
	for i := range int64(rows) {
		row := rowmill.Row{Index: i, Text: fmt.Sprintf("Review number %d: the product arrived late, but it works well and I am happy with it", i)}
		out := rowmill.RowOutput{Text: fmt.Sprintf(`{"sentiment":"positive","score":%d,"reason":"the customer of row %d is happy"}`, i%10, i), Finish: rowmill.FinishStop}
		must.Succeed(b, w.Add(&row, &out))
	}
	must.Succeed(b, w.Close())
	src := bytes.NewReader(file.Bytes())
	for name, filter := range map[string]RowFilter{
		"text": {Text: "negative"}, "word": {Where: []PropertyValue{{"sentiment", "happ"}}}, "number": {Where: []PropertyValue{{"score", "11"}}}, "code": {Code: "x"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for from := int64(0); from < rows; {
					search := RowSearch{Filter: filter, From: from, Visit: func(*rowmill.Row, *rowmill.RowOutput) error { return nil }}
					if err := search.SearchResults(b.Context(), src, src); err != nil && !errors.Is(err, ErrEnough) {
						b.Fatal(err)
					}
					from = search.Next
				}
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// containsFold gives the same result as a comparison of both texts in lower case.
func TestContainsFold(t *testing.T) {
	t.Parallel()
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		if lower := unicode.ToLower(r); lower < utf8.RuneSelf && !strings.ContainsRune(kelvinSign+dottedI, r) {
			t.Errorf("%q has the lower case %q", r, lower)
		}
	}
	letters := []string{"a", "A", "b", "B", "k", "K", "i", "I", "s", "é", "É", "ß", " ", "1", "{", "[", kelvinSign, dottedI, "ſ", "\xff"}
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(letters), 0, 12).Draw(t, "letters"), "")
	})
	rapid.Check(t, func(t *rapid.T) {
		in, part := text.Draw(t, "text"), text.Draw(t, "part")
		if n := len(in); rapid.Bool().Draw(t, "inside") && n > 0 {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			part = in[from:rapid.IntRange(from, n).Draw(t, "to")]
			if rapid.Bool().Draw(t, "upper") {
				part = strings.ToUpper(part)
			}
		}
		if got, want := containsFold(in, part), strings.Contains(strings.ToLower(in), strings.ToLower(part)); got != want {
			t.Fatalf("%q in %q: %t, want %t", part, in, got, want)
		}
	})
}
