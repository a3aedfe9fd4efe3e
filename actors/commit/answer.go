package commit

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill"
)

// A storedAnswer is an answer in the temporary file of Copies, stored as JSON. It has
// no tokens and no attempts, because these belong to the original row.
type storedAnswer struct {
	Text     []byte // as bytes, because a server may send text that is not valid UTF-8
	Vector   []byte // the embedding as little-endian 4-byte floats; empty for none
	HasScore bool
	Score    float64 // 0 without a score
	Finish   rowmill.FinishReason
	Engine   string
	Err      *rowmill.RowError
}

// encodeAnswer returns an answer as the JSON of a storedAnswer.
func encodeAnswer(out *rowmill.RowOutput) ([]byte, error) {
	s := storedAnswer{Text: []byte(out.Text), HasScore: out.HasScore, Finish: out.Finish, Engine: out.Engine, Err: out.Err}
	if out.HasScore {
		s.Score = out.Score
	}
	var err error
	if s.Vector, err = binary.Append(nil, binary.LittleEndian, out.Embedding); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return json.Marshal(s)
}

// decodeAnswer decodes the JSON of a storedAnswer into out.
func decodeAnswer(record []byte, out *rowmill.RowOutput) error {
	var s storedAnswer
	if err := json.Unmarshal(record, &s); err != nil {
		return fmt.Errorf("decode an answer: %w", err)
	}
	*out = rowmill.RowOutput{Text: string(s.Text), HasScore: s.HasScore, Score: s.Score, Finish: s.Finish, Engine: s.Engine, Err: s.Err}
	if len(s.Vector) == 0 {
		return nil
	}
	out.Embedding = make([]float32, len(s.Vector)/4)
	_, err := binary.Decode(s.Vector, binary.LittleEndian, out.Embedding)
	return err
}
