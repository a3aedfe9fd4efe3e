package sim

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/rowmill/rowmill"
)

// serveTokenize serves /tokenize: it counts the tokens of a prompt, or of messages with
// their chat template, as a completion does.
func (s *Server) serveTokenize(x *httpExchange) {
	body := struct {
		Model    *string   `json:"model"`
		Prompt   *string   `json:"prompt"`
		Messages []message `json:"messages"`
		Generate bool      `json:"add_generation_prompt"`
	}{Generate: true}
	var talk conversation
	err := decodeBody(bytes.ToValidUTF8(x.body, []byte("\uFFFD")), &body)
	switch {
	case err != nil:
	case (body.Prompt == nil) == (body.Messages == nil):
		err = badRequest("prompt", "either prompt or messages is required")
	case body.Model == nil && len(s.names) == 1:
		body.Model = &s.names[0]
	case body.Model == nil:
		err = badRequest("model", "model: Field required")
	}
	if err == nil {
		err = talk.add(body.Messages)
	}
	var m *servedModel
	if err == nil {
		m, err = s.findModel(*body.Model)
	}
	if err != nil {
		s.replyError(x, err)
		return
	}
	var ids []int
	if body.Prompt != nil {
		ids = appendTokenIDs([]int{}, []byte(*body.Prompt))
	} else {
		ids = templateIDs(talk.prompt, body.Generate)
	}
	s.replyJSON(x, struct {
		Count       int   `json:"count"`
		MaxModelLen int   `json:"max_model_len"`
		Tokens      []int `json:"tokens"`
	}{len(ids), m.context, ids})
}

// templateIDs returns the token IDs of messages in the form of conversation.prompt.
// generate adds the tokens that begin an answer.
func templateIDs(prompt []byte, generate bool) []int {
	ids := []int{}
	for len(prompt) > 0 {
		role, rest, _ := bytes.Cut(prompt, []byte{0})
		ids = append(ids, tokenStart, tokenRole+slices.Index(roles[:], string(role)), tokenBreak)
		content, rest, _ := bytes.Cut(rest, []byte{0})
		ids = appendTokenIDs(ids, content)
		ids = append(ids, tokenEnd)
		prompt = rest
	}
	if generate {
		ids = append(ids, tokenStart, tokenRole+slices.Index(roles[:], "assistant"), tokenBreak)
	}
	return ids
}

// listModels serves /v1/models: every name of every model.
func (s *Server) listModels(x *httpExchange) {
	type entry struct {
		ID          string       `json:"id"`
		Object      string       `json:"object"`
		Created     int64        `json:"created"`
		OwnedBy     string       `json:"owned_by"`
		Root        string       `json:"root"`
		Parent      string       `json:"parent,omitempty"`
		MaxModelLen int          `json:"max_model_len"`
		Simulated   bool         `json:"simulated"`
		Kind        rowmill.Kind `json:"kind"`
		Dimension   int          `json:"dimension,omitempty"`
	}
	list := struct {
		Object    string  `json:"object"`
		Data      []entry `json:"data"`
		Simulated bool    `json:"simulated"`
		Slots     int     `json:"slots,omitempty"` // requests that run at once
	}{Object: "list", Simulated: true, Slots: s.pace.Load().Slots}
	add := func(names []string, models map[string]*servedModel) {
		for _, name := range names {
			m := models[name]
			list.Data = append(list.Data, entry{name, "model", s.created.Unix(), ServerName, m.id, m.base, m.context, true, m.kind(), m.dimension})
		}
	}
	add(s.names, s.models)
	add(s.loadedAdapters())
	s.replyJSON(x, list)
}

// simVersion is the version of the simulator's behaviour: the same version and seed
// give the same answers.
const simVersion = "1"

// getFaults serves GET /sim/faults.
func (s *Server) getFaults(x *httpExchange) { s.replyJSON(x, s.Faults()) }

// postFaults serves POST /sim/faults: the body replaces all faults.
func (s *Server) postFaults(x *httpExchange) {
	var f Faults
	decoder := json.NewDecoder(bytes.NewReader(x.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		s.replyError(x, badRequest("", "read faults: %v", err))
		return
	}
	if err := s.SetFaults(f); err != nil {
		s.replyError(x, badRequest("", "%v", err))
		return
	}
	s.replyJSON(x, s.Faults())
}
