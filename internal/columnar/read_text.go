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

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// leafKind says how the values of a leaf become text. It comes from the leaf's type
// annotations:
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md.
type leafKind struct {
	class    leafClass
	physical format.Type
	scale    int           // decimals: number of digits after the point
	unit     time.Duration // times and timestamps: the unit of the number
	utc      bool          // timestamps: true for an instant, false for a local time
}

// leafClass is the group of types whose values become text in the same way.
type leafClass uint8

const (
	classNull leafClass = iota // a column that has only nulls
	classText                  // strings, enums and bytes without annotation; must be UTF-8
	classJSON                  // text that is JSON
	classBSON                  // not supported, see checkReadable
	classHex                   // bytes of fixed length, and geometries: hexadecimal
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
	errNotText = errors.New("the value is not UTF-8 text")
	errKind    = errors.New("the column has a value, but its type says that all values are null")
	errScale   = errors.New("the decimal's scale is out of range")
)

// maxScale is the largest scale of a decimal. The usual precision is at most 38, and
// wide decimals have less than 100 digits.
const maxScale = 1000

// leafKindOf returns the kind of a leaf from its annotations. It ignores an annotation
// that does not fit the physical type, as the format requires.
func leafKindOf(e *format.SchemaElement) leafKind {
	k := leafKind{physical: e.Type.V}
	k.class = map[format.Type]leafClass{
		format.Boolean: classBool, format.Int32: classInt, format.Int64: classInt, format.Int96: classInt96,
		format.Float: classFloat, format.Double: classFloat,
		format.ByteArray: classText, format.FixedLenByteArray: classHex,
	}[k.physical]
	whole := k.physical == format.Int32 || k.physical == format.Int64
	fixed := func(n int32) bool { return k.physical == format.FixedLenByteArray && e.TypeLength.V == n }
	switch t := e.LogicalType.Value.(type) {
	case *format.NullType:
		k.class = classNull
	case *format.DecimalType:
		k.setDecimal(int(t.Scale))
	case *format.DateType:
		k.setClassIf(classDate, k.physical == format.Int32)
	case *format.TimeType:
		k.unit, k.utc = unitOf(t.Unit), t.IsAdjustedToUTC
		k.setClassIf(classTime, whole && k.unit > 0)
	case *format.TimestampType:
		k.unit, k.utc = unitOf(t.Unit), t.IsAdjustedToUTC
		k.setClassIf(classStamp, k.physical == format.Int64 && k.unit > 0)
	case *format.IntType:
		k.setClassIf(classUint, whole && !t.IsSigned)
	case *format.JsonType:
		k.setClassIf(classJSON, k.physical == format.ByteArray)
	case *format.BsonType:
		k.setClassIf(classBSON, k.physical == format.ByteArray)
	case *format.GeometryType, *format.GeographyType:
		k.setClassIf(classHex, k.physical == format.ByteArray)
	case *format.UUIDType:
		k.setClassIf(classUUID, fixed(16))
	case *format.Float16Type:
		k.setClassIf(classHalf, fixed(2))
	case nil:
		k.applyConvertedType(e, whole, fixed)
	}
	return k
}

// applyConvertedType reads the annotations of old programs (ConvertedType).
func (k *leafKind) applyConvertedType(e *format.SchemaElement, isInteger bool, hasFixedLen func(int32) bool) {
	if !e.ConvertedType.Valid {
		return
	}
	switch e.ConvertedType.V {
	case deprecated.Decimal:
		k.setDecimal(int(e.Scale.V))
	case deprecated.Date:
		k.setClassIf(classDate, k.physical == format.Int32)
	case deprecated.TimeMillis, deprecated.TimeMicros:
		k.unit, k.utc = time.Microsecond, true
		if e.ConvertedType.V == deprecated.TimeMillis {
			k.unit = time.Millisecond
		}
		k.setClassIf(classTime, isInteger)
	case deprecated.TimestampMillis, deprecated.TimestampMicros:
		k.unit, k.utc = time.Microsecond, true
		if e.ConvertedType.V == deprecated.TimestampMillis {
			k.unit = time.Millisecond
		}
		k.setClassIf(classStamp, k.physical == format.Int64)
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		k.setClassIf(classUint, isInteger)
	case deprecated.Json:
		k.setClassIf(classJSON, k.physical == format.ByteArray)
	case deprecated.Bson:
		k.setClassIf(classBSON, k.physical == format.ByteArray)
	case deprecated.Interval:
		k.setClassIf(classInterval, hasFixedLen(12))
	}
}

// setClassIf sets the class if the annotation fits the physical type.
func (k *leafKind) setClassIf(class leafClass, fits bool) {
	if fits {
		k.class = class
	}
}

// setDecimal sets the scale, and the class if the physical type can be a decimal.
func (k *leafKind) setDecimal(scale int) {
	k.scale = scale
	k.setClassIf(classDecimal, k.physical == format.Int32 || k.physical == format.Int64 ||
		k.physical == format.ByteArray || k.physical == format.FixedLenByteArray)
}

// unitOf returns the duration of a time unit, or 0 if the unit is not known.
func unitOf(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return 0
	}
	return u.Value.Duration()
}

// idKind returns the ID kind for values of the leaf.
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

// numericID returns the ID for a number or a bool. ok is false for other values. NaN
// becomes null, because data frames write NaN for a missing number.
func (k *leafKind) numericID(raw []byte) (id rowmill.ID, ok bool) {
	id.Kind = k.idKind()
	switch id.Kind {
	case rowmill.IDBool:
		id.Int = int64(raw[0])
	case rowmill.IDInt:
		id.Int = k.decodeInt(raw)
	case rowmill.IDUint:
		id.Int = int64(k.decodeUint(raw))
	case rowmill.IDFloat:
		if id.Real = k.decodeFloat(raw); math.IsNaN(id.Real) {
			return rowmill.ID{}, true
		}
	default:
		return rowmill.ID{}, false
	}
	return id, true
}

func (k *leafKind) decodeInt(raw []byte) int64 {
	if k.physical == format.Int32 {
		return int64(int32(binary.LittleEndian.Uint32(raw)))
	}
	return int64(binary.LittleEndian.Uint64(raw))
}

func (k *leafKind) decodeUint(raw []byte) uint64 {
	if k.physical == format.Int32 {
		return uint64(binary.LittleEndian.Uint32(raw))
	}
	return binary.LittleEndian.Uint64(raw)
}

func (k *leafKind) decodeFloat(raw []byte) float64 {
	switch k.physical {
	case format.Float:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	case format.Double:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw))
	}
	return float16ToFloat64(binary.LittleEndian.Uint16(raw))
}

// appendText appends a value as plain text to b, and nothing for NaN. raw is the value
// in PLAIN encoding, but a boolean is one byte, 0 or 1.
func (k *leafKind) appendText(b, raw []byte) ([]byte, error) {
	switch k.class {
	case classText, classJSON:
		if !utf8.Valid(raw) {
			return b, errNotText
		}
		return append(b, raw...), nil
	case classHex:
		return hex.AppendEncode(b, raw), nil
	case classBool:
		return strconv.AppendBool(b, raw[0] != 0), nil
	case classInt:
		return strconv.AppendInt(b, k.decodeInt(raw), 10), nil
	case classUint:
		return strconv.AppendUint(b, k.decodeUint(raw), 10), nil
	case classFloat, classHalf:
		f, bits := k.decodeFloat(raw), 32
		if k.physical == format.Double {
			bits = 64
		}
		if math.IsNaN(f) {
			return b, nil
		}
		return appendFloat(b, f, bits), nil
	case classDecimal:
		return k.appendDecimal(b, raw)
	case classDate:
		return time.Unix(k.decodeInt(raw)*86400, 0).UTC().AppendFormat(b, time.DateOnly), nil
	case classTime:
		return k.toTime(k.decodeInt(raw)).AppendFormat(b, "15:04:05.999999999"), nil
	case classStamp:
		layout := "2006-01-02T15:04:05.999999999"
		if k.utc {
			layout += "Z"
		}
		return k.toTime(k.decodeInt(raw)).AppendFormat(b, layout), nil
	case classInt96:
		return int96Time(raw).AppendFormat(b, time.RFC3339Nano), nil
	case classUUID:
		return appendUUID(b, raw), nil
	case classInterval:
		return appendInterval(b, raw), nil
	}
	return b, errKind
}

// appendJSON appends a value as JSON to b. A number that JSON cannot represent becomes
// null.
func (k *leafKind) appendJSON(b, raw []byte) ([]byte, error) {
	text, err := k.appendText(make([]byte, 0, 64), raw)
	if err != nil {
		return b, err
	}
	switch k.class {
	case classBool, classInt, classUint, classDecimal:
		return append(b, text...), nil
	case classFloat, classHalf:
		if f := k.decodeFloat(raw); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(b, "null"...), nil
		}
		return append(b, text...), nil
	case classJSON:
		if json.Valid(text) {
			return append(b, text...), nil
		}
	}
	return textfmt.AppendString(b, text), nil
}

// appendDecimal appends a decimal with all its digits to b.
func (k *leafKind) appendDecimal(b, raw []byte) ([]byte, error) {
	if k.scale < 0 || k.scale > maxScale {
		return b, errScale
	}
	var digits []byte
	switch k.physical {
	case format.Int32, format.Int64:
		digits = strconv.AppendInt(nil, k.decodeInt(raw), 10)
	default: // two's complement, big-endian
		if len(raw) > maxScale {
			return b, errScale
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

// toTime returns the time that is n units after 1970-01-01 UTC.
func (k *leafKind) toTime(n int64) time.Time {
	perSecond := int64(time.Second / k.unit)
	return time.Unix(n/perSecond, n%perSecond*int64(k.unit)).UTC()
}
