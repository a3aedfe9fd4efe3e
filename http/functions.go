package http

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/function"
)

func (s *Server) library() function.Library { return function.Library{Values: s.Store, Now: s.Now} }

// A called is the published revision of a Function that a request runs.
type called struct {
	rowmill.Function
	prompt *function.Prompt
}

// call returns the Function of the account that model names; nil where model is
// one of the catalog, or nothing.
func (s *Server) call(ctx context.Context, account, model string) (*called, error) {
	if _, found := s.Catalog.Find(model); found {
		return nil, nil
	}
	f, err := s.library().Published(ctx, account, model)
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	prompt, err := function.NewPrompt(rowmill.FunctionRun{Inputs: f.Inputs, Prompt: f.Prompt})
	if err != nil {
		return nil, err // it was checked when it was published
	}
	return &called{f, prompt}, nil
}

// calledBy returns the Function that a submission names.
func (s *Server) calledBy(ctx context.Context, account string, sub *submission) (*called, error) {
	raw, given := sub.fields[fieldModel]
	var model string
	if wrong := json.Unmarshal(raw, &model); !given || wrong != nil {
		model = "" // the default model, or a problem that validate names
	}
	return s.call(ctx, account, model)
}

// sampling lays a caller's parameters over those of the Function. A null is
// absent.
func (f *called) sampling(given map[string]any) map[string]any {
	merged := map[string]any{}
	for _, params := range []map[string]any{f.Sampling, given} {
		for name, value := range params {
			if value != nil {
				merged[name] = value
			}
		}
	}
	return merged
}
