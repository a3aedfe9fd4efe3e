package schema

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// schemaOfPatterns has n patterns, each with its number for a %d.
func schemaOfPatterns(draft, pattern string, n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%d":{"pattern":"%s"}`, i, strings.ReplaceAll(pattern, "%d", strconv.Itoa(i)))
	}
	return `{` + draft + `"properties":{` + strings.Join(fields, ",") + `}}`
}

func TestPatternsAreBounded(t *testing.T) {
	t.Parallel()
	const old = `"$schema":"http://json-schema.org/draft-07/schema#",` // which checks patterns twice
	for name, c := range map[string]struct{ schema, piece, place string }{
		"Many":        {schemaOfPatterns("", "^%d$", maxPatterns+1), "more than 1000 patterns", "#/properties/f"},
		"Large":       {schemaOfPatterns("", strings.Repeat("x", maxPatternBytes)+"%d", 1), "more than 8192; shorten", "#/properties/f0/pattern"},
		"Steps":       {schemaOfPatterns("", "(x{0,1000}y%d)?", 100), "more than 65536 steps", "#/properties/f"},
		"Classes":     {schemaOfPatterns("", strings.Repeat(`\\pL`, 2000)+"%d", 1), "more than 65536 steps", "#/properties/f0/pattern"},
		"OldDraft":    {schemaOfPatterns(old, "(x{0,1000}y%d)?", 100), "more than 65536 steps", "/properties/f"},
		"OldestDraft": {schemaOfPatterns(`"$schema":"http://json-schema.org/draft-04/schema#",`, "(x{0,1000}y%d)?", 100), "more than 65536 steps", "#/properties/f"},
		"Properties":  {`{"patternProperties":{"(x{0,1000}y{0,1000}){1}` + strings.Repeat("z{0,999}", 70) + `":{}}}`, "steps", "#/patternProperties"},
	} {
		_, err := Compile([]byte(c.schema))
		if err == nil || !strings.Contains(err.Error(), c.piece) || !strings.Contains(err.Error(), c.place) {
			t.Errorf("%s: %v; want %q and %q", name, err, c.piece, c.place)
		}
	}
	for name, schema := range map[string]string{
		"Different": schemaOfPatterns("", "^%d$", maxPatterns),
		"Equal":     schemaOfPatterns("", "^x{0,1000}$", 5000),
		"OldDraft":  schemaOfPatterns(old, "^%d$", maxPatterns),
	} {
		if _, err := Compile([]byte(schema)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A schema whose patterns took 17 s and 480 MB.
func TestCostlyPatternsCostLittle(t *testing.T) {
	// Not parallel: it counts what the process allocates.
	schema := schemaOfPatterns("", "(x{0,1000}y%d)?", 4700)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Compile([]byte(schema))
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("accepted")
	}
	if took, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<20); took > limit {
		t.Errorf("%d MiB were allocated, want at most %d", took>>20, limit>>20)
	}
}
