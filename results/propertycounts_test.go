package results

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
)

// TestPropertyCounter tests each kind of property.
func TestPropertyCounter(t *testing.T) {
	t.Parallel()
	var c PropertyCounter
	labels := []string{"neg", "pos", "neg", "mixed"}
	for i := range 100 {
		answer := fmt.Sprintf(`{"label":%q,"score":%d,"stars":%d,"ok":%v,"tags":["a",%q],"text":"row %d","long":%q,"in":{}}`,
			labels[i%4], i, i%2, i%2 == 0, labels[i%4], i, strings.Repeat("x", 200))
		if i%2 == 1 {
			answer = fmt.Sprintf(`{"reasoning_content":"thought","content":%q}`, answer)
		}
		c.Add(&rowmill.RowOutput{Text: answer, Finish: rowmill.FinishStop})
	}
	c.Add(&rowmill.RowOutput{Text: "  Yes ", Finish: rowmill.FinishLength})
	c.Add(&rowmill.RowOutput{Text: "Yes", Finish: rowmill.FinishStop})
	c.Add(&rowmill.RowOutput{Text: `{"label":`, Finish: rowmill.FinishLength})
	c.Add(&rowmill.RowOutput{Err: &rowmill.RowError{Code: "schema_violation"}})
	none, bins := []ValueCount{}, []BinCount{}
	ranges := make([]BinCount, 10)
	for i := range ranges {
		ranges[i] = BinCount{From: float64(i) * 9.9, To: float64(i+1) * 9.9, Rows: 10}
	}
	ranges[9].To = 99
	labelCounts := []ValueCount{{"neg", 50}, {"mixed", 25}, {"pos", 25}}
	want := []PropertyCounts{
		{"label", 100, labelCounts, bins},
		{"score", 100, none, ranges},
		{"stars", 100, []ValueCount{{"0", 50}, {"1", 50}}, bins},
		{"ok", 100, []ValueCount{{"false", 50}, {"true", 50}}, bins},
		{"tags", 100, append([]ValueCount{{"a", 100}}, labelCounts...), bins},
		{"text", 100, none, bins},
		{"long", 100, none, bins},
		{"in", 100, none, bins},
		{"", 3, []ValueCount{{"Yes", 2}, {`{"label":`, 1}}, bins},
	}
	if diff := cmp.Diff(want, c.Properties()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]ValueCount{{"stop", 101}, {"length", 2}}, c.FinishReasons()); diff != "" {
		t.Errorf("finish reasons (-want +got):\n%s", diff)
	}
}

// TestPropertyCounter_Limits tests that very many properties and values are no error.
func TestPropertyCounter_Limits(t *testing.T) {
	t.Parallel()
	var c PropertyCounter
	for i := range 3000 {
		c.Add(&rowmill.RowOutput{Text: fmt.Sprintf(`{"id":"row %d","p%d":1,"n":%d}`, i/2, i, i%7)})
	}
	all := c.Properties()
	if len(all) != maxProperties {
		t.Fatalf("%d properties, want %d", len(all), maxProperties)
	}
	if first := all[0]; first.Property != "id" || len(first.Values) != 0 || first.Rows != 3000 {
		t.Errorf("a text with 1,500 values has the counts %+v", first)
	}
	if n := all[2]; n.Property != "n" || len(n.Values) != 7 {
		t.Errorf("a number with 7 values has the counts %+v", n)
	}
}
