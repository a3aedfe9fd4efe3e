package fleet

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/placement"
)

// adapterRetry is the time between two attempts to load an adapter. It is longer than a probe
// takes to see a loaded adapter.
const adapterRetry = time.Minute

// loadAdapters loads the adapters (LoRA) that rows need into the running server. A server that
// has started again has no adapters.
func (s *server) loadAdapters(ctx context.Context, demand []Demand, now time.Time) {
	state, known := s.fleet.cfg.Pipeline.Engine(s.set.Name)
	if s.phase != placement.Running || !known || !state.Up {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.set.Adapters)) {
		model := rowmill.Model{ID: name}
		_, loaded := state.Info.FindModel(model)
		needed := slices.ContainsFunc(demand, func(d Demand) bool { return d.Tokens > 0 && (d.Model == name || slices.Contains(d.Names, name)) })
		if tried, any := s.adapters[name]; loaded || !needed || any && now.Sub(tried) < adapterRetry {
			continue
		}
		s.adapters[name] = now
		s.fleet.tasks.Go(func() { s.loadAdapter(ctx, name) })
	}
}

// loadAdapter loads an adapter with vLLM's request. The next probe of the server finds it.
func (s *server) loadAdapter(ctx context.Context, name string) {
	log := s.fleet.cfg.Logger.With("server", s.set.Name, "adapter", name)
	body, err := json.Marshal(map[string]string{"lora_name": name, "lora_path": s.set.Adapters[name]})
	if err == nil {
		err = s.post(ctx, "/v1/load_lora_adapter", body)
	}
	if err != nil {
		log.Warn("the server does not load an adapter", "err", err, "next_try_after", adapterRetry.String())
		return
	}
	log.Info("the server has loaded an adapter")
}

// served returns the models of the server, with its adapters; none before its first start.
func (s *server) served() []engine.ServedModel {
	served := slices.Clone(s.facts.Models)
	if len(served) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.set.Adapters)) {
		if _, known := s.facts.info().FindModel(rowmill.Model{ID: name}); !known {
			served = append(served, engine.ServedModel{Name: name, Base: served[0].Name, Kind: served[0].Kind, ContextLength: served[0].ContextLength})
		}
	}
	return served
}

// unloadedAdapters returns the adapters that the running server can load.
func (s *server) unloadedAdapters() (list []StoppedServer) {
	state, _ := s.fleet.cfg.Pipeline.Engine(s.set.Name)
	for _, m := range s.served() {
		_, loaded := state.Info.FindModel(rowmill.Model{ID: m.Name})
		if _, adapter := s.set.Adapters[m.Name]; adapter && !loaded {
			info := s.facts.info()
			info.Models = []engine.ServedModel{m}
			list = append(list, StoppedServer{Name: "adapter " + m.Name + " of " + s.set.Name, Info: info})
		}
	}
	return list
}

// info describes the server for jobs while it does not run.
func (s *server) info() engine.ServerInfo {
	info := s.facts.info()
	info.Models = s.served()
	return info
}
