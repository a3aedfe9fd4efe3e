package commit

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"github.com/rowmill/rowmill"
)

// The encoding of a stored answer is: a byte of flags, the score (8 bytes) if there is
// one, and the other fields, each after its length as a uvarint: finish reason, server,
// text, 4-byte floats, and code, message and raw output of an error. Numbers are
// little-endian. Tokens and attempts belong to the original row and are not stored.
const (
	answerScored = 1 << iota
	answerFailed
)

var errAnswer = errors.New("a stored answer cannot be decoded")

// appendAnswer appends the encoding of an answer.
func appendAnswer(to []byte, out *rowmill.Output) []byte {
	var flags byte
	if out.HasScore {
		flags |= answerScored
	}
	if out.Failed() {
		flags |= answerFailed
	}
	to = append(to, flags)
	if out.HasScore {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(out.Score))
	}
	text := func(s string) { to = append(binary.AppendUvarint(to, uint64(len(s))), s...) }
	text(string(out.Finish))
	text(out.Engine)
	text(out.Text)
	to = binary.AppendUvarint(to, uint64(len(out.Embedding)))
	for _, f := range out.Embedding {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(f))
	}
	if out.Failed() {
		text(out.Err.Code)
		text(out.Err.Message)
		text(out.Err.Raw)
	}
	return to
}

// readAnswer decodes an answer into out, which shares the memory of record.
func readAnswer(record []byte, out *rowmill.Output) error {
	*out = rowmill.Output{}
	r := answerReader{rest: record}
	flags := r.take(1)
	if r.short {
		return errAnswer
	}
	if out.HasScore = flags[0]&answerScored != 0; out.HasScore {
		if score := r.take(8); !r.short {
			out.Score = math.Float64frombits(binary.LittleEndian.Uint64(score))
		}
	}
	out.Finish, out.Engine, out.Text = rowmill.FinishReason(r.text()), r.text(), r.text()
	if floats := r.take(4 * r.length()); len(floats) > 0 {
		out.Embedding = make([]float32, len(floats)/4)
		for i := range out.Embedding {
			out.Embedding[i] = math.Float32frombits(binary.LittleEndian.Uint32(floats[4*i:]))
		}
	}
	if flags[0]&answerFailed != 0 {
		out.Err = &rowmill.RowError{Code: r.text(), Message: r.text(), Raw: r.text()}
	}
	if r.short || len(r.rest) > 0 {
		return errAnswer
	}
	return nil
}

// An answerReader reads the fields of an encoded answer.
type answerReader struct {
	rest  []byte
	short bool // the record ended too early
}

func (r *answerReader) take(n int) []byte {
	if n > len(r.rest) {
		r.short = true
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *answerReader) length() int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)) {
		r.short = true
		return 0
	}
	r.rest = r.rest[size:]
	return int(n) //nolint:gosec // at most the length of the rest
}

func (r *answerReader) text() string {
	s := r.take(r.length())
	return unsafe.String(unsafe.SliceData(s), len(s))
}
