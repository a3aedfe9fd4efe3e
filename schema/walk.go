package schema

import (
	"maps"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill/spelling"
)

// walkSchemas visits the schema and every object inside it that may be a schema, with
// the steps of its JSON pointer, in the order of names. It leaves out values that only
// look like schemas.
func walkSchemas(value any, path []string, visit func(schema map[string]any, path []string)) {
	switch value := value.(type) {
	case []any:
		for i, element := range value {
			walkSchemas(element, append(path, strconv.Itoa(i)), visit)
		}
	case map[string]any:
		visit(value, path)
		for _, keyword := range slices.Sorted(maps.Keys(value)) {
			inner := append(path, step(keyword))
			switch keyword {
			case "const", "enum", "default", "examples":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
				named, _ := value[keyword].(map[string]any)
				for _, name := range slices.Sorted(maps.Keys(named)) {
					walkSchemas(named[name], append(inner, step(name)), visit)
				}
			default:
				walkSchemas(value[keyword], inner, visit)
			}
		}
	}
}

// step is a name as a step of a JSON pointer, shortened.
func step(name string) string { return pointer.Replace(spelling.Shorten(name, 64)) }

// dropFormats takes every format out of a schema, so that none refuses an answer. The
// library would check formats of draft 7 and before, and not of later drafts. A format
// is a hint for the server and the client: pydantic, for one, writes date-time for values
// that need no time zone.
func dropFormats(document any) {
	walkSchemas(document, nil, func(schema map[string]any, _ []string) {
		if _, is := schema["format"].(string); is {
			delete(schema, "format")
		}
	})
}
