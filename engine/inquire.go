package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/spelling"
)

const (
	// askedTokens bounds the answer to the row that shows what a model does:
	// models that reason begin with that.
	askedTokens = 32
	// askedText is that row.
	askedText = "Hello"
	// maxSaid bounds what is kept of a server's words, bytes: other nodes hear them.
	maxSaid = 200
)

// A Nature is what rows have shown of a model.
type Nature struct {
	Kind      rowmill.Kind // empty where the server refuses every row
	Dimension int          // of an embedding
	Refusal   string       // in the server's words
}

// Inquire finds out what a server does with a model that its last probe has
// listed, by one row: a text to embed, and where that is refused a message. The
// text goes first, since it costs nothing, and since llama.cpp, started for
// embeddings, answers messages as well. An error says that it could not be found
// out now.
func Inquire(ctx context.Context, e Engine, name string, patience time.Duration) (Nature, error) {
	row := Row{Text: []byte(askedText), Patience: patience}
	vector, err := embed(ctx, e, Params{Model: rowmill.Model{ID: name, Kind: rowmill.KindEmbedding}}, row)
	if err == nil {
		return Nature{Kind: rowmill.KindEmbedding, Dimension: len(vector)}, nil
	}
	said, refused := refusal(err)
	if !refused {
		return Nature{}, err
	}
	answer, err := generate(ctx, e, Params{Model: rowmill.Model{ID: name, Kind: rowmill.KindReasoning}, MaxTokens: askedTokens}, row)
	if err == nil {
		if answer.Reasoning != "" || strings.Contains(answer.Content, "<think>") {
			return Nature{Kind: rowmill.KindReasoning}, nil
		}
		return Nature{Kind: rowmill.KindGeneration}, nil
	}
	again, refused := refusal(err)
	if !refused {
		return Nature{}, err
	}
	return Nature{Refusal: fmt.Sprintf("a text to embed: %s, and a message: %s", spelling.Shorten(said, maxSaid), spelling.Shorten(again, maxSaid))}, nil
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
		return nil, &Error{Class: Moment, Message: "the answer holds no embedding"}
	}
	return replies[0].Embedding, nil
}

// unprepared is an error of Prepare, which is never a passing fault.
type unprepared struct{ error }

func (u unprepared) Unwrap() error { return u.error }

// refusals are the statuses of servers that cannot run such a row on the model,
// however often they are asked. Some answer 404 where the path is there for other
// models alone.
var refusals = []int{400, 404, 405, 413, 415, 422, 501}

// refusal is what a server says that refuses a row for good.
func refusal(err error) (said string, refused bool) {
	var fault *Error
	switch {
	case errors.As(err, &unprepared{}):
		return err.Error(), true
	case errors.As(err, &fault) && (fault.Class == JobFault || slices.Contains(refusals, fault.Status)):
		return fault.Error(), true
	}
	return "", false
}
