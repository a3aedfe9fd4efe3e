package columnar

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// LeafType is a type of single values in a user's file that has no TableKind of its own:
// dates, times, decimals, UUIDs, short integers. A table column of kind TableLeaf has
// the same type and the same value bytes as the user's file. So a reader sees the same
// type in both files.
type LeafType struct {
	element format.SchemaElement // the Parquet type, without name and repetition
	kind    leafKind
	width   int    // bytes of a value; 0 if values have different lengths
	arrow   string // time zone or duration unit in the form of arrow.go, or empty
}

// ParseLeaf decodes the text of a type that File.IDType returned.
func ParseLeaf(text rowmill.IDParquetType) (*LeafType, error) {
	element, note, _ := strings.Cut(string(text), ";")
	raw, err := base64.RawStdEncoding.DecodeString(element)
	if err != nil {
		return nil, fmt.Errorf("the type of a column: %w", err)
	}
	var e format.SchemaElement
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), raw, &e); err != nil {
		return nil, fmt.Errorf("the type of a column: %w", err)
	}
	l, ok := leafWithArrowType(&e, note)
	if !ok || l.arrow != note {
		return nil, errors.New("the type of a column is not a type that tables support")
	}
	return l, nil
}

// encodeIDLeaf encodes the type as the text that ParseLeaf decodes.
func (l *LeafType) encodeIDLeaf() (rowmill.IDParquetType, error) {
	raw, err := thrift.Marshal(new(thrift.CompactProtocol), &l.element)
	text := base64.RawStdEncoding.EncodeToString(raw)
	if l.arrow != "" {
		text += ";" + l.arrow
	}
	return rowmill.IDParquetType(text), err
}

// leafWithArrowType is leafOf for a column with an Arrow note: the time zone or the duration that
// the file's Arrow schema has for the column. leafOf does not know durations.
func leafWithArrowType(e *format.SchemaElement, note string) (*LeafType, bool) {
	l, ok := leafOf(e)
	switch {
	case strings.HasPrefix(note, arrowZone):
		if ok && l.kind.class == classStamp && l.kind.utc && isZone(note[len(arrowZone):]) {
			l.arrow = note
		}
	case strings.HasPrefix(note, arrowDuration):
		unit := note[len(arrowDuration):]
		if len(unit) == 1 && unit <= "3" && !ok && e.Type.Valid && e.Type.V == format.Int64 && leafKindOf(e).class == classInt {
			l, ok = &LeafType{kind: leafKindOf(e), width: 8, arrow: note}, true
			l.element.Type = e.Type
		}
	}
	return l, ok
}

// leafOf returns the type of a column in a user's file. It returns false for text, for
// types that have a TableKind of their own, and for types that readers cannot
// interpret. It leaves out annotations that do not apply.
func leafOf(e *format.SchemaElement) (*LeafType, bool) {
	if !e.Type.Valid || e.NumChildren.V != 0 {
		return nil, false
	}
	l := &LeafType{kind: leafKindOf(e)}
	l.element.Type = e.Type
	switch e.Type.V {
	case format.Int32, format.Float:
		l.width = 4
	case format.Int64, format.Double:
		l.width = 8
	case format.Int96:
		l.width = 12
	case format.FixedLenByteArray:
		l.width = int(e.TypeLength.V)
		l.element.TypeLength = e.TypeLength
		if l.width < 1 || l.width > maxPage {
			return nil, false
		}
	}
	switch l.kind.class {
	case classInt, classUint:
		if e.Type.V != format.Int32 {
			return nil, false
		}
		if !hasIntegerAnnotation(e) {
			return l, true
		}
	case classFloat:
		return l, e.Type.V == format.Float
	case classInt96:
		return l, true
	case classHex:
		return l, e.Type.V == format.FixedLenByteArray
	case classDecimal:
		if !l.kind.isValidDecimal(e) {
			return nil, false
		}
		l.element.Scale, l.element.Precision = e.Scale, e.Precision
	case classDate, classTime, classStamp, classUUID, classHalf, classInterval:
	default:
		return nil, false
	}
	l.element.ConvertedType, l.element.LogicalType = e.ConvertedType, e.LogicalType
	return l, true
}

// hasIntegerAnnotation reports whether the schema marks a column as an integer of some
// width.
func hasIntegerAnnotation(e *format.SchemaElement) bool {
	if e.LogicalType.Value != nil {
		_, ok := e.LogicalType.Value.(*format.IntType)
		return ok
	}
	c := e.ConvertedType
	return c.Valid && c.V >= deprecated.Uint8 && c.V <= deprecated.Int64
}

// isValidDecimal reports whether the scale and the precision of a decimal are in the
// range that readers accept.
func (k *leafKind) isValidDecimal(e *format.SchemaElement) bool {
	precision := e.Precision.V
	if t, ok := e.LogicalType.Value.(*format.DecimalType); ok {
		precision = t.Precision
	}
	return k.scale >= 0 && precision > 0 && int64(k.scale) <= int64(precision) && precision <= maxScale
}

// idType returns the type of the IDs if this column is the ID column. note is the
// column's note from parseArrowTypes.
func (n *schemaNode) idType(note string) (t rowmill.IDType, err error) {
	if !n.isFlat() {
		return rowmill.IDType{IDKind: rowmill.IDString}, nil
	}
	if l, ok := leafWithArrowType(n.element, note); ok {
		t.IDKind = rowmill.IDLeafValue
		t.IDLeaf, err = l.encodeIDLeaf()
		return t, err
	}
	t.IDKind = n.kind.idKind()
	return t, nil
}

// WideKind returns the kind of 64-bit numbers that can hold all values: IDInt, IDUint or IDFloat.
// ok is false if the values are no plain numbers, such as dates.
func (l *LeafType) WideKind() (kind rowmill.IDKind, ok bool) {
	kind = l.kind.idKind()
	return kind, l.arrow == "" && (kind == rowmill.IDInt || kind == rowmill.IDUint || kind == rowmill.IDFloat)
}

// Widen returns a value of the type as a value of WideKind. It returns null unchanged.
func (l *LeafType) Widen(id rowmill.ID) rowmill.ID {
	if id.Kind == rowmill.IDLeafValue {
		id, _ = l.kind.numericID([]byte(id.Text)) // WideKind says that the value is a number
	}
	return id
}

// CanHold reports whether raw has a length that a value of the type can have.
func (l *LeafType) CanHold(raw string) bool {
	if l.width == 0 { // a decimal
		return len(raw) > 0 && len(raw) <= maxScale
	}
	return len(raw) == l.width
}

// AppendText appends a value as plain text to b.
func (l *LeafType) AppendText(b, raw []byte) ([]byte, error) {
	if l.kind.class != classFloat && l.kind.class != classHalf {
		return l.kind.appendText(b, raw)
	}
	switch f := l.kind.decodeFloat(raw); {
	case math.IsInf(f, 1):
		return append(b, "Infinity"...), nil
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...), nil
	default:
		return textfmt.AppendDecimal(b, f, 32), nil
	}
}

// AppendJSON appends a value as JSON to b: a number if JSON can represent the value,
// otherwise a string. A decimal is a string, so that no reader rounds its digits.
func (l *LeafType) AppendJSON(b, raw []byte) ([]byte, error) {
	switch l.kind.class {
	case classInt, classUint:
		return l.AppendText(b, raw)
	case classFloat, classHalf:
		if !math.IsInf(l.kind.decodeFloat(raw), 0) {
			return l.AppendText(b, raw)
		}
	}
	text, err := l.AppendText(make([]byte, 0, 48), raw)
	return textfmt.AppendString(b, text), err
}

// sortOrder is how readers compare the values of a column. The minimum and maximum in
// statistics use this order.
type sortOrder uint8

const (
	orderUnsigned sortOrder = iota // compares the bits as unsigned integers
	orderSigned
	orderReal
	orderText // compares the bytes
	orderNone // no statistics: readers do not agree on the order, or statistics are not worth the work
)

// valueOrder returns how readers compare the column's values. leaf is the type of a
// TableLeaf column.
func (c TableColumn) valueOrder(leaf *LeafType) sortOrder {
	switch c.Kind {
	case TableText:
		return orderText
	case TableInt:
		return orderSigned
	case TableReal, TableFloats:
		return orderReal
	case TableLeaf:
		return leaf.valueOrder()
	default:
		return orderUnsigned
	}
}

// valueOrder returns how readers compare the values of the type.
func (l *LeafType) valueOrder() sortOrder {
	whole := l.kind.physical == format.Int32 || l.kind.physical == format.Int64
	switch {
	case l.kind.class == classFloat:
		return orderReal
	case !whole:
		return orderNone
	case l.kind.class == classUint:
		return orderUnsigned
	default:
		return orderSigned
	}
}

// comparableBits returns a value as 64 bits that can be compared in the order of the type.
func (l *LeafType) comparableBits(raw []byte) uint64 {
	switch {
	case l.width == 8:
		return binary.LittleEndian.Uint64(raw)
	case l.kind.class == classFloat:
		return math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	case l.kind.class == classUint:
		return uint64(binary.LittleEndian.Uint32(raw))
	default:
		return uint64(int64(int32(binary.LittleEndian.Uint32(raw))))
	}
}
