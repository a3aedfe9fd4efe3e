package columnar

import (
	"encoding/binary"
	"errors"
)

// Footers and page headers are encoded with thrift, and the thrift decoder trusts the
// lengths that it reads. So checkThrift checks the bytes first: every string must end
// within the bytes, and the total number of list members is limited. Compact protocol:
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

const (
	// maxFooterStructs is the largest number of structures in all lists of a footer:
	// schema elements, row groups, column chunks and encoding statistics. Each needs up
	// to 600 bytes of memory when decoded.
	maxFooterStructs = 1 << 19
	// maxFooterItems is the largest number of other members in all lists of a footer:
	// path elements, encodings, histograms. Each needs up to 24 bytes of memory when
	// decoded.
	maxFooterItems = 1 << 21
	// maxThriftDepth is the largest nesting of structures and lists. Parquet's
	// structures are much less nested.
	maxThriftDepth = 24
)

var (
	errShort   = errors.New("the metadata end too early")
	errTooMany = errors.New("the metadata have too many elements")
	errThrift  = errors.New("the metadata are not well-formed")
)

// thriftChecker is the state of one call of checkThrift.
type thriftChecker struct {
	b              []byte
	at             int // position of the next byte
	structs, items int // number of structures and of other members that later lists may have
}

// checkThrift checks the structure at the beginning of b and returns its length in
// bytes. structs and items limit the members of all lists: structures and other
// members.
func checkThrift(b []byte, maxStructs, maxItems int) (int, error) {
	s := thriftChecker{b: b, structs: maxStructs, items: maxItems}
	err := s.checkStruct(0)
	return s.at, err
}

// checkStruct checks the next structure.
func (s *thriftChecker) checkStruct(depth int) error {
	if depth > maxThriftDepth {
		return errThrift
	}
	for {
		head, err := s.byte()
		if err != nil {
			return err
		}
		if head == 0 {
			return nil
		}
		if head>>4 == 0 { // the field ID follows the header
			if _, err := s.uvarint(); err != nil {
				return err
			}
		}
		kind := head & 0x0f
		if kind == 1 || kind == 2 { // the header has the value of a boolean
			continue
		}
		if err := s.checkValue(kind, depth); err != nil {
			return err
		}
	}
}

// checkValue checks the next value. kind is its thrift type.
func (s *thriftChecker) checkValue(kind byte, depth int) error {
	switch kind {
	case 1, 2, 3: // boolean in a list, byte
		return s.skip(1)
	case 4, 5, 6: // i16, i32, i64
		_, err := s.uvarint()
		return err
	case 7: // double
		return s.skip(8)
	case 8: // string
		n, err := s.uvarint()
		if err != nil {
			return err
		}
		return s.skip(n)
	case 9, 10: // list, set
		return s.checkList(depth)
	case 12:
		return s.checkStruct(depth + 1)
	}
	return errThrift // Parquet has no maps
}

// checkList checks the next list.
func (s *thriftChecker) checkList(depth int) error {
	if depth > maxThriftDepth {
		return errThrift
	}
	head, err := s.byte()
	if err != nil {
		return err
	}
	n, kind := uint64(head>>4), head&0x0f
	if n == 15 {
		if n, err = s.uvarint(); err != nil {
			return err
		}
	}
	left := &s.items
	if kind >= 9 {
		left = &s.structs
	}
	if n > uint64(*left) {
		return errTooMany
	}
	*left -= int(n)
	for range n {
		if err := s.checkValue(kind, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *thriftChecker) byte() (byte, error) {
	if s.at >= len(s.b) {
		return 0, errShort
	}
	s.at++
	return s.b[s.at-1], nil
}

func (s *thriftChecker) uvarint() (uint64, error) {
	v, n := binary.Uvarint(s.b[s.at:])
	switch {
	case n == 0:
		return 0, errShort
	case n < 0:
		return 0, errThrift
	}
	s.at += n
	return v, nil
}

// skip skips n bytes.
func (s *thriftChecker) skip(n uint64) error {
	if n > uint64(len(s.b)-s.at) {
		return errShort
	}
	s.at += int(n)
	return nil
}
