package results

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/columnar"
)

// The attempts at rows stand beside the columns, since few rows have any to tell
// of: as attachments that those do not see who read the file for its columns. Each is of some rows, whose first and last the key
// says: a checksum (CRC-32C, four bytes, little endian) of what follows, Snappy of
// JSON Lines, one for each row, ascending. The rows of one attachment are all
// before those of the next.
const (
	triesKey = reservedPrefix + "tries:%d-%d"

	// triesBytes is the size before compression at which an attachment is written:
	// what must be read for one row, and what a writer holds beside a row group.
	triesBytes = 256 << 10

	// maxTriesRaw bounds what is decompressed: a row has a few KiB.
	maxTriesRaw = 2 * triesBytes
)

// triesPrefix is what all keys of attempts begin with.
const triesPrefix = reservedPrefix + "tries:"

var errTries = errors.New("the attempts at rows are damaged")

// triedRow is a line of an attachment.
type triedRow struct {
	Row int64 `json:"row"`
	rowmill.Tries
}

// An attacher is a columnar.TableWriter or a columnar.Splicer.
type attacher interface {
	Attach(key string, b []byte) error
}

// A triesWriter writes the attempts at rows, which ascend, into a file.
type triesWriter struct {
	to        attacher
	low, high int64
	raw       []byte
}

// add takes in the attempts at a row; nil for none.
func (w *triesWriter) add(row int64, t *rowmill.Tries) error {
	if t == nil {
		return nil
	}
	line, err := json.Marshal(triedRow{row, *t})
	if err != nil {
		return fmt.Errorf("write the attempts at row %d: %w", row, err)
	}
	if len(w.raw) == 0 {
		w.low = row
	}
	w.high = row
	w.raw = append(append(w.raw, line...), '\n')
	if len(w.raw) >= triesBytes {
		return w.flush()
	}
	return nil
}

// flush writes what is left.
func (w *triesWriter) flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	b := s2.EncodeSnappy(nil, w.raw)
	w.raw = w.raw[:0]
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return w.to.Attach(fmt.Sprintf(triesKey, w.low, w.high), append(sum, b...))
}

// copyTries attaches what is attached to t.
func copyTries(to attacher, t *columnar.Table) error {
	for _, key := range t.Keys(triesPrefix) {
		b, err := t.Attached(key)
		if err != nil {
			return err
		}
		if err := to.Attach(key, b); err != nil {
			return err
		}
	}
	return nil
}

// A triesReader reads the attempts at the rows of a file. It remembers what it
// read last, so that rows one after the other cost little. nil has none.
type triesReader struct {
	t    *columnar.Table
	all  []triesRange
	read int // of all, which rows are of; -1 for none
	rows []triedRow
}

type triesRange struct {
	key       string
	low, high int64
}

// newTriesReader finds what is attached to t.
func newTriesReader(t *columnar.Table) (*triesReader, error) {
	keys := t.Keys(triesPrefix)
	if len(keys) == 0 {
		return nil, nil
	}
	r := &triesReader{t: t, read: -1}
	after := int64(-1)
	for _, key := range keys {
		g := triesRange{key: key}
		if _, err := fmt.Sscanf(key, triesKey, &g.low, &g.high); err != nil || g.low <= after || g.high < g.low {
			return nil, fmt.Errorf("%w: %q does not follow row %d", errTries, key, after)
		}
		after = g.high
		r.all = append(r.all, g)
	}
	return r, nil
}

// of returns the attempts at a row; nil where nothing is known of them.
func (r *triesReader) of(row int64) (*rowmill.Tries, error) {
	if r == nil {
		return nil, nil
	}
	at, within := slices.BinarySearchFunc(r.all, row, func(g triesRange, row int64) int {
		if g.low <= row && row <= g.high {
			return 0
		}
		return cmp.Compare(g.low, row)
	})
	if !within {
		return nil, nil
	}
	if r.read != at {
		if err := r.load(at); err != nil {
			return nil, fmt.Errorf("read the attempts at row %d: %w", row, err)
		}
	}
	i, found := slices.BinarySearchFunc(r.rows, row, func(t triedRow, row int64) int { return cmp.Compare(t.Row, row) })
	if !found {
		return nil, nil
	}
	return &r.rows[i].Tries, nil
}

func (r *triesReader) load(at int) error {
	b, err := r.t.Attached(r.all[at].key)
	if err != nil {
		return err
	}
	if len(b) < 4 || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[4:], crc32.MakeTable(crc32.Castagnoli)) {
		return fmt.Errorf("%w: the checksum is wrong", errTries)
	}
	if n, err := s2.DecodedLen(b[4:]); err != nil || n > maxTriesRaw {
		return fmt.Errorf("%w: %d bytes", errTries, n)
	}
	raw, err := s2.Decode(nil, b[4:])
	if err != nil {
		return fmt.Errorf("%w: %w", errTries, err)
	}
	r.read, r.rows = at, nil
	for lines := json.NewDecoder(bytes.NewReader(raw)); lines.More(); {
		var row triedRow
		if err := lines.Decode(&row); err != nil {
			return fmt.Errorf("%w: %w", errTries, err)
		}
		r.rows = append(r.rows, row)
	}
	return nil
}
