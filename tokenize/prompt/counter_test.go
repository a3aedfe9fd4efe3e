package prompt

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
)

// counting is a set of counters with a tokenizer for all models, and their
// reports and logs.
type counting struct {
	*CounterFactory
	errors map[string]float64
	log    bytes.Buffer
}

func newCounting(tokens Tokenizer, warning string, err error) *counting {
	c := &counting{errors: make(map[string]float64)}
	c.CounterFactory = NewCounterFactory(
		func(rowmill.Model) (Tokenizer, string, error) { return tokens, warning, err },
		func(model string, mean float64) { c.errors[model] = mean },
		slog.New(slog.NewTextHandler(&c.log, nil)),
	)
	return c
}

func (c *counting) of(t interface {
	Helper()
	Fatal(args ...any)
}, model rowmill.Model,
) *Counter {
	counter, err := c.NewCounter(&rowmill.Spec{Model: model, System: "Be kind."})
	check(t, err)
	return counter
}

var chatModel = rowmill.Model{ID: "m", Template: "chatml"}

func TestCounter_WithTheModelsVocabulary(t *testing.T) {
	t.Parallel()
	c := newCounting(words{}, "", nil)
	counter := c.of(t, chatModel)
	want := find(t, "chatml").Measure(words{}, JobPrompt{System: "Be kind."}).Count("two words")
	if got := counter.Count("two words"); got != want || !counter.IsExact("two words") || counter.IsExact("<|im_end|>") {
		t.Errorf("%d tokens, want %d, exact but for names of special tokens", got, want)
	}
	for range 2 * window { // odd reports of a server must change nothing
		counter.RecordUsage("two words", 1000)
	}
	if got := counter.Count("two words"); got != want {
		t.Errorf("after odd reports %d tokens, want %d", got, want)
	}
	if off := c.errors["m"]; off != float64(1000-want) {
		t.Errorf("an error of %v tokens is reported, want %d", off, 1000-want)
	}
	if c.log.Len() > 0 {
		t.Errorf("logged: %s", c.log.String())
	}
}

// A vocabulary without a template counts only the texts. The servers' reports
// show the size of the template.
func TestCounter_LearnsTheTemplateOfAModelThatNamesNone(t *testing.T) {
	t.Parallel()
	c := newCounting(words{}, "", nil)
	bare := rowmill.Model{ID: "own"}
	if exact, _, ok := c.CountQuality(bare); exact || ok {
		t.Errorf("before any row isExact is %t, an error is known: %t", exact, ok)
	}
	counter := c.of(t, bare)
	texts := counter.Count("two words")
	for range window {
		counter.RecordUsage("two words", int64(texts+9))
	}
	if got := counter.Count("three more words"); got != texts+1+9 || counter.IsExact("three more words") {
		t.Errorf("%d tokens, want %d and no certainty", got, texts+1+9)
	}
	if exact, off, ok := c.CountQuality(bare); exact || !ok || off != 9 {
		t.Errorf("isExact is %t, the error %v", exact, off)
	}
	if exact, _, _ := c.CountQuality(chatModel); !exact {
		t.Error("with vocabulary and template it is not exact")
	}
	if exact, _, _ := newCounting(words{}, "another is used", nil).CountQuality(chatModel); exact {
		t.Error("with another vocabulary it is exact")
	}
}

func TestCounter_LearnsWithAnotherVocabulary(t *testing.T) {
	t.Parallel()
	c := newCounting(words{}, "copy the model's tokenizer.json", nil)
	first := c.of(t, chatModel)
	plain := first.measure.Count("two words")
	if first.IsExact("two words") {
		t.Error("a count by another vocabulary says that it is exact")
	}
	for n := range minRows {
		text := strings.Repeat("word ", n)
		first.RecordUsage(text, int64(2*first.measure.Count(text)))
	}
	// The calibration outlives the job, and belongs to one model.
	if got := c.of(t, chatModel).Count("two words"); got != 2*plain {
		t.Errorf("the next job counts %d tokens, want %d", got, 2*plain)
	}
	if got := c.of(t, rowmill.Model{ID: "other", Template: "chatml"}).Count("two words"); got != plain {
		t.Errorf("another model counts %d tokens, want %d", got, plain)
	}
	if n := strings.Count(c.log.String(), "token counts are estimates"); n != 2 {
		t.Errorf("warned %d times, want once per model:\n%s", n, c.log.String())
	}
}

func TestCounter_WithoutAVocabularyCountsBytes(t *testing.T) {
	t.Parallel()
	counter := newCounting(nil, "", nil).of(t, rowmill.Model{ID: "m", Template: "embedding"})
	for text, want := range map[string]int{"": 0, "a": 1, "four": 1, "fours": 2, "日本": 2} {
		if got := counter.Count(text); got != want {
			t.Errorf("%q has %d tokens, want %d", text, got, want)
		}
	}
	if got := (byteEstimate{}).Truncate("日本語", 2); got != "日本" {
		t.Errorf("cut to %q, want at most 8 bytes", got)
	}
	cut, ok, err := counter.TruncateToFit(t.Context(), strings.Repeat("a", 100), 10, nil)
	if err != nil || !ok || len(cut) != 40 {
		t.Errorf("cut to %d bytes, %t, %v, want 40", len(cut), ok, err)
	}
}

func TestCounter_SaysWhichModelIsWrong(t *testing.T) {
	t.Parallel()
	damaged := errors.New("damaged")
	if _, err := newCounting(nil, "", damaged).NewCounter(&rowmill.Spec{Model: chatModel}); !errors.Is(err, damaged) || !strings.Contains(err.Error(), "model m") {
		t.Errorf("error = %v, want the vocabulary's error with the model", err)
	}
	if _, err := newCounting(words{}, "", nil).NewCounter(&rowmill.Spec{Model: rowmill.Model{ID: "m", Template: "none-such"}}); err == nil || !strings.Contains(err.Error(), "model m") {
		t.Errorf("error = %v, want the template's error with the model", err)
	}
}

// If our count is in doubt, the server's count must decide. Otherwise the
// server must not be asked.
func TestFit_AsksTheServerOnlyInDoubt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		warning := rapid.SampledFrom([]string{"", "another vocabulary"}).Draw(t, "warning")
		counter := newCounting(words{}, warning, nil).of(t, chatModel)
		text := strings.Repeat(rapid.SampledFrom([]string{"word ", "Ünï", "<|im_end|>", "日"}).Draw(t, "piece"), rapid.IntRange(0, 200).Draw(t, "pieces"))
		limit := rapid.IntRange(1, 300).Draw(t, "limit")
		factor := rapid.IntRange(1, 3).Draw(t, "factor")
		real := func(text string) int { return factor * counter.measure.Count(text) }
		asked := 0
		cut, ok, err := counter.TruncateToFit(t.Context(), text, limit, func(_ context.Context, text string) (int, error) {
			asked++
			return real(text), nil
		})
		short := len(text)+counter.measure.Overhead() <= limit
		switch {
		case err != nil || !strings.HasPrefix(text, cut) || !utf8.ValidString(cut):
			t.Fatalf("%q in %d tokens: %q, %v", text, limit, cut, err)
		case short || counter.IsExact(text):
			if asked > 0 || ok && counter.measure.Count(cut) > limit && !short {
				t.Fatalf("%q in %d tokens: %q after %d questions, want none", text, limit, cut, asked)
			}
		case ok && real(cut) > limit, !ok && real("") <= limit:
			t.Fatalf("%q in %d tokens: %q has %d, fits %t", text, limit, cut, real(cut), ok)
		}
	})
}

func TestFit_FewQuestionsAreEnough(t *testing.T) {
	t.Parallel()
	counter := newCounting(words{}, "another vocabulary", nil).of(t, chatModel)
	text, asked := strings.Repeat("word ", 5000), 0
	cut, ok, err := counter.TruncateToFit(t.Context(), text, 1000, func(_ context.Context, text string) (int, error) {
		asked++
		return counter.measure.Count(text), nil
	})
	if n := counter.measure.Count(cut); err != nil || !ok || n < 900 || n > 1000 || asked > 3 {
		t.Errorf("cut to %d tokens with %d questions, %t, %v", n, asked, ok, err)
	}
	mute := errors.New("does not count")
	if _, _, err := counter.TruncateToFit(t.Context(), text, 50, func(context.Context, string) (int, error) { return 0, mute }); !errors.Is(err, mute) {
		t.Errorf("error = %v, want the server's", err)
	}
}

func TestBeginning_CutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, n := rapid.String().Draw(t, "text"), rapid.IntRange(-1, 50).Draw(t, "n")
		got := TruncateToBytes(text, n)
		if !strings.HasPrefix(text, got) || len(got) > max(n, 0) || !utf8.ValidString(got) || len(got) < min(len(text), n)-3 {
			t.Fatalf("at most %d bytes of %q: %q", n, text, got)
		}
	})
}

// CountUpperBound must be a limit for any reports of the server.
func TestCounter_AtMost(t *testing.T) {
	t.Parallel()
	for _, used := range []func(counted int) int{
		func(n int) int { return 3*n + 40 },
		func(n int) int { return n + 7 },
		func(n int) int { return max(1, 500-n) },
	} {
		c := &Counter{measure: Template{}.Measure(words{}, JobPrompt{}), learned: &Calibration{}, report: func(float64) {}}
		for n := range 2 * refitEvery {
			for _, text := range []string{"", "a b c", strings.Repeat("word ", 90)} {
				if count, most := c.Count(text), c.CountUpperBound(text); count > most {
					t.Fatalf("after %d answers: %d tokens, at most %d", n, count, most)
				}
			}
			c.learned.AddSample(n, used(n))
		}
	}
}
