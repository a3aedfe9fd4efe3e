package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/http"
)

// Actors lists the actors of the nodes.
func (s service) Actors(ctx context.Context, f http.ActorFilter) ([]http.Actor, []http.Answered, error) {
	replies, err := s.System.Actors(ctx, f.Node, registry.Filter{Kind: f.Kind, Job: f.Job, MinAge: f.MinAge})
	if err != nil {
		return nil, nil, err
	}
	var all []http.Actor
	answered := []http.Answered{}
	for _, r := range replies {
		a := http.Answered{ID: r.Node.ID, Name: r.Node.Name, LeftOut: r.Answer.LeftOut}
		if r.Err != nil {
			a.Error = orNull(short(r.Err))
		}
		answered = append(answered, a)
		for _, one := range r.Answer.Actors {
			all = append(all, actorOf(r.Node.ID, r.Node.Name, one))
		}
	}
	slices.SortStableFunc(all, func(a, b http.Actor) int {
		return cmp.Compare(max(b.Oldest, b.ErrandSeconds), max(a.Oldest, a.ErrandSeconds))
	})
	return all, answered, nil
}

func actorOf(id, name string, a registry.Actor) http.Actor {
	actor := http.Actor{
		NodeID: id, Node: name, ID: a.ID, Kind: a.Kind, Job: orNull(a.Job), Engine: orNull(a.Engine), State: a.State, Since: a.Since,
		Restarts: a.Restarts, Depth: a.Depth, Oldest: seconds(a.Oldest),
		Errands: a.Errands, Errand: orNull(a.Errand), ErrandSeconds: seconds(a.ErrandTime),
	}
	if a.Trouble != nil {
		actor.LastError = &http.LastError{Message: a.Trouble.Text, At: a.Trouble.At}
	}
	return actor
}

// seconds are those of a duration, to the millisecond.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// orNull is a text, or nil where it is empty.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
