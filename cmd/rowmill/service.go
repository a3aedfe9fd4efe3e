package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/http"
)

// service is the pipeline as the API sees it.
type service struct {
	*actors.System
}

var _ http.Service = service{}

// Checks has a line for each inference server. One that is down does not make
// the node unready: jobs are accepted and wait for it.
func (s service) Checks(context.Context) []http.Check {
	var checks []http.Check
	for _, e := range s.Engines() {
		checks = append(checks, http.Check{Name: "engine " + e.Name, OK: true, Text: describeEngine(e)})
	}
	if len(checks) == 0 {
		checks = append(checks, http.Check{Name: "engines", OK: true, Text: "not asked yet"})
	}
	return checks
}

func describeEngine(e actors.EngineStatus) string {
	switch {
	case !e.Up && e.Err != nil:
		return fmt.Sprintf("DOWN, jobs for its models wait: %v", e.Err)
	case !e.Up:
		return "DOWN, jobs for its models wait"
	}
	text := strings.TrimSpace(e.Info.Kind + " " + e.Info.Version)
	if e.Info.Simulated {
		text = "SIMULATED, outputs are made up; " + text
	}
	names := make([]string, 0, len(e.Info.Models))
	for _, m := range e.Info.Models {
		names = append(names, m.Name)
	}
	const shown = 5
	if len(names) > shown {
		names = append(names[:shown], fmt.Sprintf("%d more", len(names)-shown))
	}
	return text + ", serves " + strings.Join(names, ", ")
}
