package kv

import (
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
)

// A stored value is the id of its transaction (8 bytes), the kind of its checksum (1),
// the checksum (4) and the bytes. The checksum does not cover the id, because a backend
// may assign the id at the end of a commit.
const (
	idBytes  = 8
	overhead = idBytes + 1 + 4

	kindCRC = 0
	kindSHA = 1 // checksum of counters that a Redis script has changed: scripts have SHA-1 but no CRC
)

// castagnoli is the table of a CRC polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// KeyChecksum returns the checksum of a table and a key. The checksum of the value continues this
// checksum, so a value under the wrong key counts as damaged.
func KeyChecksum(t Table, key []byte) uint32 {
	crc := ^uint32(0)
	for i := range len(t) { // without crc32.Update, because it takes no string
		crc = castagnoli[byte(crc)^t[i]] ^ crc>>8
	}
	crc = castagnoli[byte(crc)] ^ crc>>8 // a zero byte between the table and the key
	return crc32.Update(^crc, castagnoli, key)
}

// sum returns the checksum of a table, a key and a value. kind is kindCRC or kindSHA.
func sum(kind byte, t Table, key, value []byte) uint32 {
	if kind == kindCRC {
		return crc32.Update(KeyChecksum(t, key), castagnoli, value)
	}
	digest := sha1.Sum(append(strconv.AppendUint(nil, uint64(KeyChecksum(t, key)), 10), value...))
	return binary.BigEndian.Uint32(digest[:])
}

// Seal returns a value in the form that backends store: with the transaction id and a
// checksum before the value.
func Seal(t Table, key []byte, id uint64, value []byte) []byte {
	stored := make([]byte, 0, overhead+len(value))
	stored = append(binary.BigEndian.AppendUint64(stored, id), kindCRC)
	stored = binary.BigEndian.AppendUint32(stored, sum(kindCRC, t, key, value))
	return append(stored, value...)
}

// Unseal undoes Seal, or returns a *DamagedError. The returned value shares the memory
// of stored.
func Unseal(t Table, key, stored []byte) (id uint64, value []byte, err error) {
	if len(stored) >= overhead {
		kind, value := stored[idBytes], stored[overhead:len(stored):len(stored)]
		known := kind == kindCRC || kind == kindSHA && len(value) > 0 && len(value)%8 == 0
		if known && binary.BigEndian.Uint32(stored[idBytes+1:]) == sum(kind, t, key, value) {
			return binary.BigEndian.Uint64(stored), value, nil
		}
	}
	return 0, nil, &DamagedError{t, append([]byte(nil), key...)}
}

// DecodeCounters decodes a value that Add wrote. A nil value has no counters.
func DecodeCounters(value []byte) ([]int64, error) {
	if len(value)%8 != 0 {
		return nil, errors.New("counters are cut off")
	}
	counters := make([]int64, len(value)/8)
	for i := range counters {
		counters[i] = int64(binary.BigEndian.Uint64(value[8*i:]))
	}
	return counters, nil
}

// AddCounters returns the counters of value with amounts added, encoded.
func AddCounters(value []byte, amounts ...int64) ([]byte, error) {
	counters, err := DecodeCounters(value)
	if err != nil {
		return nil, err
	}
	for len(counters) < len(amounts) {
		counters = append(counters, 0)
	}
	for i, n := range amounts {
		counters[i] = addSaturating(counters[i], n)
	}
	raw := make([]byte, 0, 8*len(counters))
	for _, n := range counters {
		raw = binary.BigEndian.AppendUint64(raw, uint64(n))
	}
	return raw, nil
}

// addSaturating adds two numbers. After an overflow the sum is the limit of int64.
func addSaturating(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// checkKey refuses a key of invalid length.
func checkKey(t Table, key []byte) error {
	if len(key) < 1 || len(key) > MaxKey {
		return fmt.Errorf("a key of table %s has %d bytes, 1 to %d are allowed", t, len(key), MaxKey)
	}
	return nil
}
