package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/panics"
)

// askPatience is the timeout of a trial row, which finds out the capabilities of a
// model. An inference server usually needs less time to load a model or to work through
// its queue.
const askPatience = 2 * time.Minute

// sendTrial sends a trial row to the next model whose capabilities neither the
// inference server nor the catalog names. Only one trial row is in flight at a time.
func (s *engineActor) sendTrial(c actor.Context) {
	if !s.health.Up() {
		return
	}
	name, due := s.capabilities.NextToTest(s.health.Info(), time.Now())
	if !due {
		return
	}
	s.tasks.run(c, "ask what a model does", func(ctx context.Context) mailboxStep {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		found, err := runWithResult(panics.Catch, func() (engine.Capability, error) {
			return engine.ProbeCapability(ctx, s.engine, name, askPatience)
		})
		return func(c actor.Context) { s.onTrialEnded(c, name, found, err) }
	})
}

func (s *engineActor) onTrialEnded(c actor.Context, name string, found engine.Capability, err error) {
	asked := engine.ServedModel{Name: name}
	for _, m := range s.health.Info().Models {
		if m.Name == name {
			asked = m
		}
	}
	switch news := s.capabilities.RecordResult(asked, found, err, time.Now()); {
	case err != nil && !errors.Is(err, context.Canceled):
		s.log.Debug("the trial row of a model failed, will be tried again", "model", name, "err", err)
	case !news:
	case found.Refusal != "":
		s.log.Warn("the server lists a model but runs no rows of it", "model", name, "err", found.Refusal)
	default:
		s.log.Info("a trial row has found out the capabilities of a model", "model", name, "kind", found.Kind, "dimension", found.Dimension)
	}
	if s.health.Up() {
		s.announceState(c, nil)
		s.sendTrial(c)
	}
}
