package commit

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

func TestAnswersProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		want := rowmill.RowOutput{Finish: rowmill.FinishReason(text.Draw(t, "finish")), Engine: text.Draw(t, "engine")}
		if want.HasScore = rapid.Bool().Draw(t, "scored"); want.HasScore {
			want.Score = rapid.Float64().Draw(t, "score")
		}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			want.Text = text.Draw(t, "text") + "\xff"
		case 1:
			want.Embedding = rapid.SliceOfN(rapid.Float32(), 1, 20).Draw(t, "embedding")
		case 2:
			want.Err = &rowmill.RowError{Code: text.Draw(t, "code"), Message: text.Draw(t, "message"), Raw: text.Draw(t, "raw")}
		}
		record := must.Get(encodeAnswer(&want))(t)
		got := rowmill.RowOutput{Text: "of another row", Attempts: 3, InputTokens: 1}
		must.Succeed(t, decodeAnswer(record, &got))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		for n := range record {
			if decodeAnswer(record[:n], &got) == nil {
				t.Fatalf("cut to %d of %d bytes, and decoded", n, len(record))
			}
		}
	})
}

// Tokens and attempts stay with the row that ran.
func TestAnAnswerOfACopyCostsNothing(t *testing.T) {
	t.Parallel()
	ran := rowmill.RowOutput{Text: "x", InputTokens: 9, OutputTokens: 8, Attempts: 2, Score: math.NaN()}
	var copied rowmill.RowOutput
	record, err := encodeAnswer(&ran)
	must.Succeed(t, errors.Join(err, decodeAnswer(record, &copied)))
	if diff := cmp.Diff(rowmill.RowOutput{Text: "x"}, copied); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
