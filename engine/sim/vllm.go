package sim

import (
	"encoding/json"
	"slices"
)

// This file has the requests with which vLLM's sleep mode and its adapters are controlled.

// sleepHandler returns the handler of vLLM's sleep mode. A sleeping server runs no rows.
func sleepHandler(asleep bool) func(*Server, *httpExchange) {
	return func(s *Server, x *httpExchange) {
		s.asleep.Store(asleep)
		s.replyOK(x, typeJSON, nil)
	}
}

func (s *Server) isSleeping(x *httpExchange) {
	s.replyJSON(x, map[string]any{"is_sleeping": s.asleep.Load(), "simulated": true})
}

// loadAdapter serves POST /v1/load_lora_adapter. The adapter answers like the first model.
func (s *Server) loadAdapter(x *httpExchange) {
	var body struct {
		Name string `json:"lora_name"`
		Path string `json:"lora_path"`
	}
	if err := json.Unmarshal(x.body, &body); err != nil || body.Name == "" || body.Path == "" {
		s.replyError(x, badRequest("lora_name", "lora_name and lora_path are required"))
		return
	}
	adapter := *s.models[s.names[0]]
	adapter.base = s.names[0]
	if _, loaded := s.adapters.LoadOrStore(body.Name, &adapter); loaded {
		s.replyError(x, badRequest("lora_name", "the adapter %s is loaded already", body.Name))
		return
	}
	s.replyOK(x, typeJSON, nil)
}

// loadedAdapters returns the adapters by name, and their names sorted.
func (s *Server) loadedAdapters() (names []string, adapters map[string]*servedModel) {
	adapters = map[string]*servedModel{}
	s.adapters.Range(func(name, adapter any) bool {
		names = append(names, name.(string))
		adapters[name.(string)] = adapter.(*servedModel)
		return true
	})
	slices.Sort(names)
	return names, adapters
}
