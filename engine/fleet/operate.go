package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/store"
)

// A Status is the state of one server of the cluster, for operators.
type Status struct {
	NodeID          string // id of the node
	Node, Name      string
	Models          []engine.ServedModel // models of the server; empty before its first start
	GPUs            int                  // number of GPUs that the server needs
	On              []int                // GPUs of the process; empty without a process
	Phase           placement.Phase      // Stopping also means that the server goes to sleep
	Since           time.Time            // begin of the phase
	Mode            placement.Mode       // what an operator wants; Auto if nothing
	Load            time.Duration        // time from a start until the server answers, measured or expected
	TokensPerSecond float64              // measured or expected
	RetryAt         time.Time            // the server does not start before, because its last start failed
	Error           string               // why the last run ended, and the last line of its output; empty after an answer
	FailingSince    time.Time            // time of the first end after the last answer; zero without Error
}

// List returns the servers of all nodes, sorted by node and name.
func List(ctx context.Context, values store.NamedValues) (all []Status, err error) {
	r, _, err := loadRecord(ctx, values)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(r.Nodes)) {
		node := r.Nodes[id]
		for _, s := range node.Servers {
			status := Status{
				NodeID: id, Node: node.Name, Name: s.Name, Models: s.Served, GPUs: s.GPUs, On: s.On, Phase: s.Phase, Since: s.Since, Mode: placement.Auto,
				Load: time.Duration(s.Load * float64(time.Second)), TokensPerSecond: s.Rate, RetryAt: s.RetryAt, Error: s.Error, FailingSince: s.FailingSince,
			}
			if mode := r.Modes[modeKey(node.Name, s.Name)]; mode != "" {
				status.Mode = mode
			}
			all = append(all, status)
		}
	}
	slices.SortStableFunc(all, func(a, b Status) int {
		return strings.Compare(a.Node+"\x00"+a.Name, b.Node+"\x00"+b.Name)
	})
	return all, nil
}

// SetMode sets what an operator wants of a server. The error is rowmill.ErrNotFound if there
// is no such server, and rowmill.ErrConflict if nodes changed the record during the call all
// the time.
func SetMode(ctx context.Context, values store.NamedValues, node, name string, mode placement.Mode) error {
	for range modeAttempts {
		r, version, err := loadRecord(ctx, values)
		if err != nil {
			return err
		}
		if !r.has(node, name) {
			return fmt.Errorf("server %s of node %s: %w", name, node, rowmill.ErrNotFound)
		}
		if r.Modes == nil {
			r.Modes = map[string]placement.Mode{}
		}
		r.Modes[modeKey(node, name)] = mode
		if err = r.save(ctx, values, version); !isConflict(err) {
			return err
		}
	}
	return fmt.Errorf("server %s of node %s: %w", name, node, rowmill.ErrConflict)
}

// modeAttempts is how often SetMode writes the record if nodes change it at the same time.
const modeAttempts = 10
