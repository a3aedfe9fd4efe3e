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
	"github.com/rowmill/rowmill/internal/columnar"
)

// The attempts at rows are stored in attachments, outside the columns, because few rows
// have a log of attempts. Readers of the columns do not see attachments. An attachment
// covers a range of rows; its key has the first and the last row. Its content is a
// checksum (CRC-32C, four bytes, little endian) followed by Snappy-compressed JSON
// Lines, one line per row, in ascending order. The rows of an attachment come before
// the rows of the next attachment.
const (
	triesKey = ReservedPrefix + "tries:%d-%d"

	// triesBytes is the size before compression, in bytes, at which an attachment is
	// written. A reader decodes this many bytes to find the attempts at one row. A
	// writer has this many bytes in memory in addition to a row group.
	triesBytes = 256 << 10

	// maxTriesRaw is the largest size of an attachment after decompression, in bytes.
	// It leaves room for the last row, which has a few KiB.
	maxTriesRaw = 2 * triesBytes
)

// triesPrefix is the beginning of the keys of all attachments with attempts.
const triesPrefix = ReservedPrefix + "tries:"

var errTries = errors.New("the attempts at rows are damaged")

// rowAttempts is one line of an attachment: the attempts at one row.
type rowAttempts struct {
	Row int64 `json:"row"`
	rowmill.RowAttempts
}

// attachmentWriter is a writer to which attachments can be added: a columnar.TableWriter or a
// columnar.Splicer.
type attachmentWriter interface {
	Attach(key string, b []byte) error
}

// attemptsWriter writes the attempts at rows as attachments of a file. The rows must be
// added in ascending order.
type attemptsWriter struct {
	to        attachmentWriter
	low, high int64  // first and last row in raw
	raw       []byte // buffered lines
}

// add adds the attempts at a row. t is nil if the row has no log of attempts.
func (w *attemptsWriter) add(row int64, t *rowmill.RowAttempts) error {
	if t == nil {
		return nil
	}
	line, err := json.Marshal(rowAttempts{row, *t})
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

// flush writes the buffered attempts as an attachment.
func (w *attemptsWriter) flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	b := s2.EncodeSnappy(nil, w.raw)
	w.raw = w.raw[:0]
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return w.to.Attach(fmt.Sprintf(triesKey, w.low, w.high), append(sum, b...))
}

// copyAttempts copies the attempts at rows from t to another file.
func copyAttempts(to attachmentWriter, t *columnar.Table) error {
	for _, key := range t.Keys(triesPrefix) {
		b, err := t.ReadAttachment(key)
		if err != nil {
			return err
		}
		if err := to.Attach(key, b); err != nil {
			return err
		}
	}
	return nil
}

// attemptsReader reads the attempts at the rows of a file. It keeps the last attachment
// decoded, so that consecutive rows are fast. A nil attemptsReader has no attempts.
type attemptsReader struct {
	t      *columnar.Table
	all    []attemptsRange // all attachments with attempts, in order of rows
	loaded int             // index in all of the attachment that is decoded in rows; -1 for none
	rows   []rowAttempts
}

// attemptsRange is an attachment: its key, and its first and last row.
type attemptsRange struct {
	key       string
	low, high int64
}

// newAttemptsReader lists the attachments with attempts of t. It returns nil if there are
// none.
func newAttemptsReader(t *columnar.Table) (*attemptsReader, error) {
	keys := t.Keys(triesPrefix)
	if len(keys) == 0 {
		return nil, nil
	}
	r := &attemptsReader{t: t, loaded: -1}
	after := int64(-1)
	for _, key := range keys {
		g := attemptsRange{key: key}
		if _, err := fmt.Sscanf(key, triesKey, &g.low, &g.high); err != nil || g.low <= after || g.high < g.low {
			return nil, fmt.Errorf("%w: %q does not follow row %d", errTries, key, after)
		}
		after = g.high
		r.all = append(r.all, g)
	}
	return r, nil
}

// attempts returns the log of attempts at a row, or nil if the row has none.
func (r *attemptsReader) attempts(row int64) (*rowmill.RowAttempts, error) {
	if r == nil {
		return nil, nil
	}
	at, within := slices.BinarySearchFunc(r.all, row, func(g attemptsRange, row int64) int {
		if g.low <= row && row <= g.high {
			return 0
		}
		return cmp.Compare(g.low, row)
	})
	if !within {
		return nil, nil
	}
	if r.loaded != at {
		if err := r.loadAttachment(at); err != nil {
			return nil, fmt.Errorf("read the attempts at row %d: %w", row, err)
		}
	}
	i, found := slices.BinarySearchFunc(r.rows, row, func(t rowAttempts, row int64) int { return cmp.Compare(t.Row, row) })
	if !found {
		return nil, nil
	}
	return &r.rows[i].RowAttempts, nil
}

// loadAttachment reads and decodes the attachment all[at].
func (r *attemptsReader) loadAttachment(index int) error {
	b, err := r.t.ReadAttachment(r.all[index].key)
	if err != nil {
		return err
	}
	if len(b) < 4 || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[4:], crc32.MakeTable(crc32.Castagnoli)) {
		return fmt.Errorf("%w: the checksum is wrong", errTries)
	}
	if n, err := s2.DecodedLen(b[4:]); err != nil || n > maxTriesRaw {
		return fmt.Errorf("%w: an attachment has %d bytes", errTries, n)
	}
	raw, err := s2.Decode(nil, b[4:])
	if err != nil {
		return fmt.Errorf("%w: %w", errTries, err)
	}
	r.loaded, r.rows = index, nil
	for lines := json.NewDecoder(bytes.NewReader(raw)); lines.More(); {
		var row rowAttempts
		if err := lines.Decode(&row); err != nil {
			return fmt.Errorf("%w: %w", errTries, err)
		}
		r.rows = append(r.rows, row)
	}
	return nil
}
