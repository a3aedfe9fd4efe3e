package columnar

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"
)

// int96Time decodes an old 12-byte timestamp, as Impala and early Spark wrote it:
// nanoseconds of the day, and a Julian day number.
func int96Time(raw []byte) time.Time {
	const unixEpoch = 2440588 // the Julian day of 1970-01-01
	nanos := int64(binary.LittleEndian.Uint64(raw))
	days := int64(int32(binary.LittleEndian.Uint32(raw[8:]))) - unixEpoch
	return time.Unix(days*86400, 0).Add(time.Duration(nanos)).UTC()
}

// appendUUID appends 16 bytes as a UUID with hyphens.
func appendUUID(b, raw []byte) []byte {
	if len(raw) != 16 {
		return hex.AppendEncode(b, raw)
	}
	for i, end := range []int{4, 6, 8, 10, 16} {
		start := []int{0, 4, 6, 8, 10}[i]
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, raw[start:end])
	}
	return b
}

// appendInterval appends an interval (months, days and milliseconds) as an ISO 8601
// duration.
func appendInterval(b, raw []byte) []byte {
	if len(raw) != 12 {
		return hex.AppendEncode(b, raw)
	}
	months, days := binary.LittleEndian.Uint32(raw), binary.LittleEndian.Uint32(raw[4:])
	millis := binary.LittleEndian.Uint32(raw[8:])
	b = append(strconv.AppendUint(append(b, 'P'), uint64(months), 10), 'M')
	b = append(strconv.AppendUint(b, uint64(days), 10), 'D', 'T')
	b = appendFloat(b, float64(millis)/1000, 64)
	return append(b, 'S')
}

// float16ToFloat64 converts an IEEE 754 half-precision number (16 bits) to float64.
func float16ToFloat64(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&31), float64(h&1023)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
