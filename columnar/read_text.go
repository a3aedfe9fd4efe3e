package columnar

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/spelling"
)

// leafKind is how the values of a leaf become text. Formats:
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md.
type leafKind struct {
	class    leafClass
	physical parquet.Kind
	scale    int           // decimals
	unit     time.Duration // times and timestamps
	utc      bool          // timestamps: an instant, not a wall clock
}

type leafClass uint8

const (
	classNull leafClass = iota // only nulls, or a type nobody knows
	classText                  // strings, enums and unmarked bytes: UTF-8
	classJSON                  // text that is JSON
	classBSON                  // not read: see File.chunk
	classHex                   // bytes of fixed length; geometries
	classBool
	classInt
	classUint
	classFloat
	classHalf // a 2-byte float
	classDecimal
	classDate
	classTime
	classStamp
	classInt96 // the old 12-byte timestamp
	classUUID
	classInterval
)

var (
	errNotText  = errors.New("it is not UTF-8 text")
	errKind     = errors.New("a value does not have the column's type")
	errTooScaly = errors.New("the decimal's scale is out of range")
)

// maxScale bounds a decimal's scale: the format's largest precisions are near
// 38, wide ones below 100.
const maxScale = 1000

// leafKindOf reads the annotations of a leaf. One that does not fit the
// physical type is ignored, as the format asks.
func leafKindOf(e *format.SchemaElement) leafKind {
	k := leafKind{physical: parquet.Kind(e.Type.V)}
	k.class = map[parquet.Kind]leafClass{
		parquet.Boolean: classBool, parquet.Int32: classInt, parquet.Int64: classInt, parquet.Int96: classInt96,
		parquet.Float: classFloat, parquet.Double: classFloat,
		parquet.ByteArray: classText, parquet.FixedLenByteArray: classHex,
	}[k.physical]
	whole := k.physical == parquet.Int32 || k.physical == parquet.Int64
	fixed := func(n int32) bool { return k.physical == parquet.FixedLenByteArray && e.TypeLength.V == n }
	switch t := e.LogicalType.Value.(type) {
	case *format.NullType:
		k.class = classNull
	case *format.DecimalType:
		k.decimal(int(t.Scale))
	case *format.DateType:
		k.set(classDate, k.physical == parquet.Int32)
	case *format.TimeType:
		k.unit, k.utc = unitOf(t.Unit), t.IsAdjustedToUTC
		k.set(classTime, whole && k.unit > 0)
	case *format.TimestampType:
		k.unit, k.utc = unitOf(t.Unit), t.IsAdjustedToUTC
		k.set(classStamp, k.physical == parquet.Int64 && k.unit > 0)
	case *format.IntType:
		k.set(classUint, whole && !t.IsSigned)
	case *format.JsonType:
		k.set(classJSON, k.physical == parquet.ByteArray)
	case *format.BsonType:
		k.set(classBSON, k.physical == parquet.ByteArray)
	case *format.GeometryType, *format.GeographyType:
		k.set(classHex, k.physical == parquet.ByteArray)
	case *format.UUIDType:
		k.set(classUUID, fixed(16))
	case *format.Float16Type:
		k.set(classHalf, fixed(2))
	case nil:
		k.converted(e, whole, fixed)
	}
	return k
}

// converted reads the annotations of old writers.
func (k *leafKind) converted(e *format.SchemaElement, whole bool, fixed func(int32) bool) {
	if !e.ConvertedType.Valid {
		return
	}
	switch e.ConvertedType.V {
	case deprecated.Decimal:
		k.decimal(int(e.Scale.V))
	case deprecated.Date:
		k.set(classDate, k.physical == parquet.Int32)
	case deprecated.TimeMillis, deprecated.TimeMicros:
		k.unit, k.utc = time.Microsecond, true
		if e.ConvertedType.V == deprecated.TimeMillis {
			k.unit = time.Millisecond
		}
		k.set(classTime, whole)
	case deprecated.TimestampMillis, deprecated.TimestampMicros:
		k.unit, k.utc = time.Microsecond, true
		if e.ConvertedType.V == deprecated.TimestampMillis {
			k.unit = time.Millisecond
		}
		k.set(classStamp, k.physical == parquet.Int64)
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		k.set(classUint, whole)
	case deprecated.Json:
		k.set(classJSON, k.physical == parquet.ByteArray)
	case deprecated.Bson:
		k.set(classBSON, k.physical == parquet.ByteArray)
	case deprecated.Interval:
		k.set(classInterval, fixed(12))
	}
}

func (k *leafKind) set(class leafClass, fits bool) {
	if fits {
		k.class = class
	}
}

func (k *leafKind) decimal(scale int) {
	k.scale = scale
	k.set(classDecimal, k.physical == parquet.Int32 || k.physical == parquet.Int64 ||
		k.physical == parquet.ByteArray || k.physical == parquet.FixedLenByteArray)
}

func unitOf(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return 0
	}
	return u.Value.Duration()
}

// idKind is the type that the leaf's values have as ids.
func (k *leafKind) idKind() rowmill.IDKind {
	switch k.class {
	case classBool:
		return rowmill.IDBool
	case classInt:
		return rowmill.IDInt
	case classUint:
		return rowmill.IDUint
	case classFloat, classHalf:
		return rowmill.IDFloat
	}
	return rowmill.IDString
}

// number returns the id of a value that is not text. NaN is how data frames
// write a missing number, so it becomes null.
func (k *leafKind) number(v parquet.Value) (id rowmill.ID, ok bool) {
	id.Kind = k.idKind()
	if id.Kind == rowmill.IDString || v.Kind() != k.physical {
		return rowmill.ID{}, false
	}
	switch id.Kind {
	case rowmill.IDBool:
		if v.Boolean() {
			id.Int = 1
		}
	case rowmill.IDInt:
		id.Int = k.int(v)
	case rowmill.IDUint:
		id.Int = int64(k.uint(v))
	case rowmill.IDFloat:
		if id.Real = k.float(v); math.IsNaN(id.Real) {
			return rowmill.ID{}, true
		}
	}
	return id, true
}

func (k *leafKind) int(v parquet.Value) int64 {
	if k.physical == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

func (k *leafKind) uint(v parquet.Value) uint64 {
	if k.physical == parquet.Int32 {
		return uint64(v.Uint32())
	}
	return v.Uint64()
}

func (k *leafKind) float(v parquet.Value) float64 {
	switch k.physical {
	case parquet.Float:
		return float64(v.Float())
	case parquet.Double:
		return v.Double()
	}
	return halfFloat(binary.LittleEndian.Uint16(v.ByteArray()))
}

// appendText writes a value as plain text, null and NaN as nothing.
func (k *leafKind) appendText(b []byte, v parquet.Value) ([]byte, error) {
	if v.IsNull() {
		return b, nil
	}
	if v.Kind() != k.physical {
		return b, errKind
	}
	switch k.class {
	case classText, classJSON:
		if !utf8.Valid(v.ByteArray()) {
			return b, errNotText
		}
		return append(b, v.ByteArray()...), nil
	case classHex:
		return hex.AppendEncode(b, v.ByteArray()), nil
	case classBool:
		return strconv.AppendBool(b, v.Boolean()), nil
	case classInt:
		return strconv.AppendInt(b, k.int(v), 10), nil
	case classUint:
		return strconv.AppendUint(b, k.uint(v), 10), nil
	case classFloat, classHalf:
		f, bits := k.float(v), 32
		if k.physical == parquet.Double {
			bits = 64
		}
		if math.IsNaN(f) {
			return b, nil
		}
		return appendFloat(b, f, bits), nil
	case classDecimal:
		return k.appendDecimal(b, v)
	case classDate:
		return time.Unix(int64(v.Int32())*86400, 0).UTC().AppendFormat(b, time.DateOnly), nil
	case classTime:
		return k.instant(k.int(v)).AppendFormat(b, "15:04:05.999999999"), nil
	case classStamp:
		layout := "2006-01-02T15:04:05.999999999"
		if k.utc {
			layout += "Z"
		}
		return k.instant(v.Int64()).AppendFormat(b, layout), nil
	case classInt96:
		return int96Time(v.Int96()).AppendFormat(b, time.RFC3339Nano), nil
	case classUUID:
		return appendUUID(b, v.ByteArray()), nil
	case classInterval:
		return appendInterval(b, v.ByteArray()), nil
	}
	return b, errKind
}

// appendJSON writes a value as JSON. Numbers that JSON lacks become null.
func (k *leafKind) appendJSON(b []byte, v parquet.Value) ([]byte, error) {
	if v.IsNull() {
		return append(b, "null"...), nil
	}
	text, err := k.appendText(make([]byte, 0, 64), v)
	if err != nil {
		return b, err
	}
	switch k.class {
	case classBool, classInt, classUint, classDecimal:
		return append(b, text...), nil
	case classFloat, classHalf:
		if f := k.float(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(b, "null"...), nil
		}
		return append(b, text...), nil
	case classJSON:
		if json.Valid(text) {
			return append(b, text...), nil
		}
	}
	return spelling.AppendString(b, text), nil
}

func (k *leafKind) appendDecimal(b []byte, v parquet.Value) ([]byte, error) {
	if k.scale < 0 || k.scale > maxScale {
		return b, errTooScaly
	}
	var digits []byte
	switch k.physical {
	case parquet.Int32, parquet.Int64:
		digits = strconv.AppendInt(nil, k.int(v), 10)
	default: // two's complement, big-endian
		raw := v.ByteArray()
		if len(raw) > maxScale {
			return b, errTooScaly
		}
		n := new(big.Int).SetBytes(raw)
		if len(raw) > 0 && raw[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(raw))))
		}
		digits = n.Append(nil, 10)
	}
	if digits[0] == '-' {
		b, digits = append(b, '-'), digits[1:]
	}
	for len(digits) <= k.scale {
		digits = append([]byte{'0'}, digits...)
	}
	point := len(digits) - k.scale
	b = append(b, digits[:point]...)
	if k.scale > 0 {
		b = append(append(b, '.'), digits[point:]...)
	}
	return b, nil
}

// instant is n units after 1970.
func (k *leafKind) instant(n int64) time.Time {
	perSecond := int64(time.Second / k.unit)
	return time.Unix(n/perSecond, n%perSecond*int64(k.unit)).UTC()
}
