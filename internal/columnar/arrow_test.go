package columnar

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// durationColumn returns a column that differs from an integer column only in
// Arrow's schema.
func durationColumn(tb testing.TB, note string) TableColumn {
	tb.Helper()
	var e format.SchemaElement
	e.Type.Set(format.Int64)
	l, ok := leafWithArrowType(&e, note)
	if !ok {
		tb.Fatalf("%q makes no type", note)
	}
	text := must.Get(l.encodeIDLeaf())(tb)
	return TableColumn{Name: "elapsed", Kind: TableLeaf, Leaf: text}
}

func TestTypesOfOtherFiles(t *testing.T) {
	t.Parallel()
	element := func(physical format.Type, set func(e *format.SchemaElement)) *format.SchemaElement {
		e := new(format.SchemaElement)
		e.Type.Set(physical)
		set(e)
		return e
	}
	for name, e := range map[string]*format.SchemaElement{
		"a decimal with more digits after the point than digits": element(format.Int32, func(e *format.SchemaElement) {
			e.ConvertedType.Set(deprecated.Decimal)
			e.Scale.Set(3)
			e.Precision.Set(2)
		}),
		"a decimal without digits": element(format.Int64, func(e *format.SchemaElement) { e.LogicalType.Value = new(format.DecimalType) }),
		"no bytes at all":          element(format.FixedLenByteArray, func(*format.SchemaElement) {}),
		"text":                     element(format.ByteArray, func(*format.SchemaElement) {}),
	} {
		if l, ok := leafOf(e); ok {
			t.Errorf("%s is taken for %+v", name, l)
		}
	}
	l, ok := leafOf(element(format.Int32, func(e *format.SchemaElement) { e.LogicalType.Value = new(format.UUIDType) }))
	if !ok || l.element.LogicalType.Value != nil {
		t.Errorf("an annotation that does not fit is kept: %+v, %t", l, ok)
	}
	for _, text := range []string{"", "?", "AAAA", string(durationColumn(t, arrowDuration+"2").Leaf) + "0"} {
		if l, err := ParseLeaf(rowmill.IDParquetType(text)); err == nil {
			t.Errorf("ParseLeaf(%q) = %+v", text, l)
		}
	}
	decimal, ok := leafOf(element(format.ByteArray, func(e *format.SchemaElement) {
		e.LogicalType.Value = &format.DecimalType{Scale: 2, Precision: 5}
	}))
	if !ok || decimal.CanHold("") || !decimal.CanHold("\x01\x02") {
		t.Errorf("values of %+v", decimal)
	}
	if text, err := decimal.AppendJSON(nil, []byte{0xFF, 0x85}); err != nil || string(text) != `"-1.23"` {
		t.Errorf("a decimal is %s, %v", text, err)
	}
}

// FuzzArrow reads random schemas. Every note that it gets must be a note that
// can be written.
func FuzzArrow(f *testing.F) {
	columns := []TableColumn{
		durationColumn(f, arrowDuration+"3"),
		{Name: "inputs", Kind: TableText, Required: true},
		{Name: "floats", Kind: TableFloats},
		{Name: "real", Kind: TableReal},
		{Name: "n", Kind: TableInt},
	}
	raw := must.Get(base64.StdEncoding.DecodeString(arrowSchema(columns)))(f)
	f.Add(raw)
	for i := range raw {
		f.Add(raw[:i])
		for _, v := range []byte{raw[i] + 1, 0xFF, 0x80} {
			bent := bytes.Clone(raw)
			bent[i] = v
			f.Add(bent)
		}
	}
	if notes, err := readArrowSchema(raw); err != nil || len(notes) != 1 || notes[0] != arrowDuration+"3" {
		f.Fatalf("what was written is read as %v, %v", notes, err)
	}
	var e format.SchemaElement
	e.Type.Set(format.Int64)
	e.LogicalType.Value = &format.TimestampType{IsAdjustedToUTC: true, Unit: format.TimeUnit{Value: new(format.MicroSeconds)}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		notes, err := readArrowSchema(raw)
		if err != nil {
			return
		}
		for i, note := range notes {
			l, ok := leafWithArrowType(&e, note)
			if !ok {
				t.Fatalf("column %d: %q", i, note)
			}
			text := must.Get(l.encodeIDLeaf())(t)
			if _, err := ParseLeaf(text); err != nil {
				t.Fatalf("column %d: %q: %v", i, note, err)
			}
		}
	})
}
