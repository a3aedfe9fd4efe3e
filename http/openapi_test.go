package http

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

func TestOpenAPI_ParityOfRoutes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var document struct {
		OpenAPI string                                `json:"openapi"`
		Info    struct{ Version string }              `json:"info"`
		Paths   map[string]map[string]json.RawMessage `json:"paths"`
	}
	must.Succeed(t, json.Unmarshal(w.get("/openapi.json", bare...).want(200).text, &document))
	if document.OpenAPI != "3.1.0" || document.Info.Version != "1.2.3" {
		t.Errorf("openapi %s, version %s", document.OpenAPI, document.Info.Version)
	}
	var documented, routed []string
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" "+path)
			}
		}
	}
	parameter := regexp.MustCompile(`[:*]([a-z_]+)`)
	for _, route := range w.engine.Routes() {
		routed = append(routed, route.Method+" "+parameter.ReplaceAllString(route.Path, "{$1}"))
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if !slices.Equal(documented, routed) {
		t.Errorf("documented %v\nrouted     %v", documented, routed)
	}
}
