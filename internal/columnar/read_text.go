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

// leafKind says how the values of a leaf become text. Formats:
// https://github.com/apache/parquet-format/blob/master/LogicalTypes.md.
type leafKind struct {
	class    leafClass
	physical format.Type
	scale    int           // of decimals
	unit     time.Duration // of times and timestamps
	utc      bool          // timestamps: an instant, not local time
}

type leafClass uint8

const (
	classNull leafClass = iota // only nulls
	classText                  // strings, enums and unmarked bytes: UTF-8
	classJSON                  // text that is JSON
	classBSON                  // cannot be read, see checkReadable
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
	errNotText = errors.New("it is not UTF-8 text")
	errKind    = errors.New("the column has a value, but its type says that all values are null")
	errScale   = errors.New("the decimal's scale is out of range")
)

// maxScale is the largest scale of a decimal. Usual precisions go up to 38, and
// wide decimals stay below 100.
const maxScale = 1000

// leafKindOf reads the annotations of a leaf. It ignores an annotation that
// does not fit the physical type, as the format requires.
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
		k.decimal(int(t.Scale))
	case *format.DateType:
		k.set(classDate, k.physical == format.Int32)
	case *format.TimeType:
		k.unit, k.utc = unitOf(t.Unit), t.IsAdjustedToUTC
		k.set(classTime, whole && k.unit > 0)
	case *format.TimestampType:
		k.unit, k.utc = unitOf(t.Unit), t.IsAdjustedToUTC
		k.set(classStamp, k.physical == format.Int64 && k.unit > 0)
	case *format.IntType:
		k.set(classUint, whole && !t.IsSigned)
	case *format.JsonType:
		k.set(classJSON, k.physical == format.ByteArray)
	case *format.BsonType:
		k.set(classBSON, k.physical == format.ByteArray)
	case *format.GeometryType, *format.GeographyType:
		k.set(classHex, k.physical == format.ByteArray)
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
		k.set(classDate, k.physical == format.Int32)
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
		k.set(classStamp, k.physical == format.Int64)
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		k.set(classUint, whole)
	case deprecated.Json:
		k.set(classJSON, k.physical == format.ByteArray)
	case deprecated.Bson:
		k.set(classBSON, k.physical == format.ByteArray)
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
	k.set(classDecimal, k.physical == format.Int32 || k.physical == format.Int64 ||
		k.physical == format.ByteArray || k.physical == format.FixedLenByteArray)
}

func unitOf(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return 0
	}
	return u.Value.Duration()
}

// idKind returns the ID type of the leaf's values.
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

// number returns the ID of a value that is not text. Data frames write NaN for
// a missing number, so NaN becomes null.
func (k *leafKind) number(raw []byte) (id rowmill.ID, ok bool) {
	id.Kind = k.idKind()
	switch id.Kind {
	case rowmill.IDBool:
		id.Int = int64(raw[0])
	case rowmill.IDInt:
		id.Int = k.int(raw)
	case rowmill.IDUint:
		id.Int = int64(k.uint(raw))
	case rowmill.IDFloat:
		if id.Real = k.float(raw); math.IsNaN(id.Real) {
			return rowmill.ID{}, true
		}
	default:
		return rowmill.ID{}, false
	}
	return id, true
}

func (k *leafKind) int(raw []byte) int64 {
	if k.physical == format.Int32 {
		return int64(int32(binary.LittleEndian.Uint32(raw)))
	}
	return int64(binary.LittleEndian.Uint64(raw))
}

func (k *leafKind) uint(raw []byte) uint64 {
	if k.physical == format.Int32 {
		return uint64(binary.LittleEndian.Uint32(raw))
	}
	return binary.LittleEndian.Uint64(raw)
}

func (k *leafKind) float(raw []byte) float64 {
	switch k.physical {
	case format.Float:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	case format.Double:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw))
	}
	return halfFloat(binary.LittleEndian.Uint16(raw))
}

// appendText appends a value as plain text, and nothing for NaN. raw is the
// value in PLAIN encoding, but a boolean is one byte, 0 or 1.
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
		return strconv.AppendInt(b, k.int(raw), 10), nil
	case classUint:
		return strconv.AppendUint(b, k.uint(raw), 10), nil
	case classFloat, classHalf:
		f, bits := k.float(raw), 32
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
		return time.Unix(k.int(raw)*86400, 0).UTC().AppendFormat(b, time.DateOnly), nil
	case classTime:
		return k.instant(k.int(raw)).AppendFormat(b, "15:04:05.999999999"), nil
	case classStamp:
		layout := "2006-01-02T15:04:05.999999999"
		if k.utc {
			layout += "Z"
		}
		return k.instant(k.int(raw)).AppendFormat(b, layout), nil
	case classInt96:
		return int96Time(raw).AppendFormat(b, time.RFC3339Nano), nil
	case classUUID:
		return appendUUID(b, raw), nil
	case classInterval:
		return appendInterval(b, raw), nil
	}
	return b, errKind
}

// appendJSON appends a value as JSON. Numbers that JSON cannot hold become
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
		if f := k.float(raw); math.IsNaN(f) || math.IsInf(f, 0) {
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

func (k *leafKind) appendDecimal(b, raw []byte) ([]byte, error) {
	if k.scale < 0 || k.scale > maxScale {
		return b, errScale
	}
	var digits []byte
	switch k.physical {
	case format.Int32, format.Int64:
		digits = strconv.AppendInt(nil, k.int(raw), 10)
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

// instant returns the time n units after 1970.
func (k *leafKind) instant(n int64) time.Time {
	perSecond := int64(time.Second / k.unit)
	return time.Unix(n/perSecond, n%perSecond*int64(k.unit)).UTC()
}
