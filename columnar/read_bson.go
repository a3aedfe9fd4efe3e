package columnar

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendBSON writes a BSON document as plain JSON: dates as RFC 3339 text, ids
// in hexadecimal, binary in base64. Types that JSON has nothing for are
// refused. See https://bsonspec.org/spec.html.
func appendBSON(b, doc []byte) ([]byte, error) {
	b, rest, err := bsonDocument(b, doc, false, 0)
	if err == nil && len(rest) > 0 {
		err = errBSON
	}
	return b, err
}

var (
	errBSON     = errors.New("its BSON is damaged")
	errBSONType = errors.New("its BSON has a type that JSON lacks")
)

// maxBSONDepth is what MongoDB allows.
const maxBSONDepth = 100

func bsonDocument(b, doc []byte, array bool, depth int) (out, rest []byte, err error) {
	if len(doc) < 5 || depth > maxBSONDepth {
		return b, nil, errBSON
	}
	size := int64(binary.LittleEndian.Uint32(doc))
	if size < 5 || size > int64(len(doc)) || doc[size-1] != 0 {
		return b, nil, errBSON
	}
	doc, rest = doc[4:size-1], doc[size:]
	open, end := byte('{'), byte('}')
	if array {
		open, end = '[', ']'
	}
	b = append(b, open)
	for first := true; len(doc) > 0; first = false {
		if !first {
			b = append(b, ',')
		}
		kind := doc[0]
		name, after, ok := bsonCString(doc[1:])
		if !ok {
			return b, nil, errBSON
		}
		if !array {
			b = append(appendJSONString(b, name), ':')
		}
		if b, doc, err = bsonValue(b, kind, after, depth); err != nil {
			return b, nil, err
		}
	}
	return append(b, end), rest, nil
}

func bsonValue(b []byte, kind byte, v []byte, depth int) (out, rest []byte, err error) {
	fixed := map[byte]int{0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x10: 4, 0x11: 8, 0x12: 8}[kind]
	if len(v) < fixed {
		return b, nil, errBSON
	}
	raw, rest := v[:fixed], v[fixed:]
	switch kind {
	case 0x01: // double
		f := math.Float64frombits(binary.LittleEndian.Uint64(raw))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(b, "null"...), rest, nil
		}
		return appendFloat(b, f, 64), rest, nil
	case 0x02, 0x0D, 0x0E: // string, code, symbol
		if len(v) < 4 {
			return b, nil, errBSON
		}
		n := int64(binary.LittleEndian.Uint32(v))
		if n < 1 || n > int64(len(v)-4) || !utf8.Valid(v[4:3+n]) {
			return b, nil, errBSON
		}
		return appendJSONString(b, v[4:3+n]), v[4+n:], nil
	case 0x03, 0x04: // document, array
		return bsonDocument(b, v, kind == 0x04, depth+1)
	case 0x05: // binary
		if len(v) < 5 {
			return b, nil, errBSON
		}
		n := int64(binary.LittleEndian.Uint32(v))
		if n > int64(len(v)-5) {
			return b, nil, errBSON
		}
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, v[5:5+n])
		return append(b, '"'), v[5+n:], nil
	case 0x07: // object id
		b = append(b, '"')
		return append(hex.AppendEncode(b, raw), '"'), rest, nil
	case 0x08: // boolean
		return strconv.AppendBool(b, raw[0] != 0), rest, nil
	case 0x09: // milliseconds since 1970
		at := time.UnixMilli(int64(binary.LittleEndian.Uint64(raw))).UTC()
		return append(at.AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), rest, nil
	case 0x06, 0x0A: // undefined, null
		return append(b, "null"...), rest, nil
	case 0x10: // int32
		return strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(raw))), 10), rest, nil
	case 0x11, 0x12: // timestamp, int64
		return strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(raw)), 10), rest, nil
	}
	return b, nil, errBSONType
}

func bsonCString(b []byte) (name, rest []byte, ok bool) {
	for i, c := range b {
		if c == 0 {
			return b[:i], b[i+1:], true
		}
	}
	return nil, nil, false
}
