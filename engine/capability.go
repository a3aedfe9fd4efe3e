package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// probeTokens limits the answer to the probe row. Reasoning models begin their
	// answer with reasoning, so even a short answer shows the reasoning.
	probeTokens = 32
	// probeText is the text of the probe row.
	probeText = "Hello"
	// maxRefusal limits the text of a refusal that is kept, in bytes, because the text is
	// also sent to other nodes.
	maxRefusal = 200
)

// A Capability says what a served model can do. A probe row has shown it.
type Capability struct {
	Kind      rowmill.Kind // empty if the server refuses every row
	Dimension int          // of an embedding model
	Refusal   string       // the server's error messages, if the server refuses every row
}

// FindCapability sends a probe row to find out whether a model generates, reasons or
// embeds. The last probe must have listed the model. It first asks for an embedding,
// and if the server refuses that, for a chat answer. The embedding comes first because
// it is cheap, and because llama.cpp with --embeddings also answers chat requests. An
// error means that the result is still unknown.
func FindCapability(ctx context.Context, e Engine, name string, patience time.Duration) (Capability, error) {
	row := Row{Text: []byte(probeText), Patience: patience}
	vector, err := embed(ctx, e, Params{Model: rowmill.Model{ID: name, Kind: rowmill.KindEmbedding}}, row)
	if err == nil {
		return Capability{Kind: rowmill.KindEmbedding, Dimension: len(vector)}, nil
	}
	embedRefusal, refused := refusal(err)
	if !refused {
		return Capability{}, err
	}
	answer, err := generate(ctx, e, Params{Model: rowmill.Model{ID: name, Kind: rowmill.KindReasoning}, MaxTokens: probeTokens}, row)
	if err == nil {
		if answer.Reasoning != "" || strings.Contains(answer.Content, "<think>") {
			return Capability{Kind: rowmill.KindReasoning}, nil
		}
		return Capability{Kind: rowmill.KindGeneration}, nil
	}
	chatRefusal, refused := refusal(err)
	if !refused {
		return Capability{}, err
	}
	return Capability{Refusal: fmt.Sprintf("a text to embed: %s, and a message: %s", textfmt.Shorten(embedRefusal, maxRefusal), textfmt.Shorten(chatRefusal, maxRefusal))}, nil
}

func generate(ctx context.Context, e Engine, p Params, row Row) (Reply, error) {
	call, err := e.Prepare(p)
	if err != nil {
		return Reply{}, unprepared{err}
	}
	return call.Generate(ctx, row)
}

func embed(ctx context.Context, e Engine, p Params, row Row) ([]float32, error) {
	call, err := e.Prepare(p)
	if err != nil {
		return nil, unprepared{err}
	}
	replies, faults, err := call.Embed(ctx, []Row{row})
	switch {
	case err != nil:
		return nil, err
	case faults[0] != nil:
		return nil, faults[0]
	case len(replies[0].Embedding) == 0:
		return nil, &Error{Class: Moment, Message: "the answer has no embedding"}
	}
	return replies[0].Embedding, nil
}

// unprepared wraps an error of Prepare, which is never transient.
type unprepared struct{ error }

func (u unprepared) Unwrap() error { return u.error }

// refusals are the HTTP statuses of a permanent refusal: the server cannot run such a
// row on the model. Some servers answer 404 although the path exists for other models.
var refusals = []int{400, 404, 405, 413, 415, 422, 501}

// refusal reports whether err is a permanent refusal, and returns the message of the
// refusal.
func refusal(err error) (message string, refused bool) {
	var fault *Error
	switch {
	case errors.As(err, &unprepared{}):
		return err.Error(), true
	case errors.As(err, &fault) && (fault.Class == JobFault || slices.Contains(refusals, fault.Status)):
		return fault.Error(), true
	}
	return "", false
}
