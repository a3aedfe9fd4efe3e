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
	// maxRefusal is the maximum length in bytes of the text of a stored refusal. The
	// text is short because each node also sends it to the other nodes.
	maxRefusal = 200
)

// A Capability is the result of a probe row: it says what a served model can do.
type Capability struct {
	Kind      rowmill.Kind // empty if the server refuses every row
	Dimension int          // numbers per embedding; 0 if Kind is not KindEmbedding
	Refusal   string       // the server's error messages, if the server refuses every row
}

// ProbeCapability sends probe rows to find out whether a model generates, reasons or
// embeds. The last call of e.Probe must have listed the model under name. timeout is
// the timeout of each probe row. ProbeCapability first asks for an embedding, and if the
// server refuses the embedding, for a chat answer. The embedding comes first because it
// is cheap, and because llama.cpp with --embeddings also answers chat requests. After
// an error the capability is still unknown.
func ProbeCapability(ctx context.Context, e Engine, name string, timeout time.Duration) (Capability, error) {
	row := Row{Text: []byte(probeText), Timeout: timeout}
	vector, err := prepareAndEmbed(ctx, e, JobParams{Model: rowmill.Model{ID: name, Kind: rowmill.KindEmbedding}}, row)
	if err == nil {
		return Capability{Kind: rowmill.KindEmbedding, Dimension: len(vector)}, nil
	}
	embedRefusal, refused := refusalMessage(err)
	if !refused {
		return Capability{}, err
	}
	answer, err := prepareAndGenerate(ctx, e, JobParams{Model: rowmill.Model{ID: name, Kind: rowmill.KindReasoning}, MaxTokens: probeTokens}, row)
	if err == nil {
		if answer.Reasoning != "" || strings.Contains(answer.Content, "<think>") {
			return Capability{Kind: rowmill.KindReasoning}, nil
		}
		return Capability{Kind: rowmill.KindGeneration}, nil
	}
	chatRefusal, refused := refusalMessage(err)
	if !refused {
		return Capability{}, err
	}
	return Capability{Refusal: fmt.Sprintf("a text to embed: %s, and a message: %s", textfmt.Shorten(embedRefusal, maxRefusal), textfmt.Shorten(chatRefusal, maxRefusal))}, nil
}

// prepareAndGenerate prepares p and asks for the chat answer to a row.
func prepareAndGenerate(ctx context.Context, e Engine, p JobParams, row Row) (Reply, error) {
	call, err := e.Prepare(p)
	if err != nil {
		return Reply{}, prepareError{err}
	}
	return call.Generate(ctx, row)
}

// prepareAndEmbed prepares p and asks for the embedding of a row.
func prepareAndEmbed(ctx context.Context, e Engine, p JobParams, row Row) ([]float32, error) {
	call, err := e.Prepare(p)
	if err != nil {
		return nil, prepareError{err}
	}
	replies, faults, err := call.Embed(ctx, []Row{row})
	switch {
	case err != nil:
		return nil, err
	case faults[0] != nil:
		return nil, faults[0]
	case len(replies[0].Embedding) == 0:
		return nil, &Error{Class: Transient, Message: "the answer has no embedding"}
	}
	return replies[0].Embedding, nil
}

// prepareError marks an error as an error of Engine.Prepare. Such an error is permanent.
type prepareError struct{ error }

func (u prepareError) Unwrap() error { return u.error }

// refusals lists the HTTP statuses that mean a permanent refusal: the server cannot run
// the probe row on this model. Some servers answer 404 for one model although they know
// the path.
var refusals = []int{400, 404, 405, 413, 415, 422, 501}

// refusalMessage reports whether err means that the server permanently refuses the probe row.
// If so, it also returns the error message of the server.
func refusalMessage(err error) (message string, refused bool) {
	var fault *Error
	switch {
	case errors.As(err, &prepareError{}):
		return err.Error(), true
	case errors.As(err, &fault) && (fault.Class == JobFault || slices.Contains(refusals, fault.Status)):
		return fault.Error(), true
	}
	return "", false
}
