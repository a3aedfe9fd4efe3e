package schema

import (
	"maps"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// walkSchemas calls visit for a schema and for every object inside it that may be a
// schema, in the order of their names. path has the steps of the JSON pointer to the
// object. walkSchemas does not visit values that only look like schemas, such as
// constants.
func walkSchemas(value any, path []string, visit func(schema map[string]any, path []string)) {
	switch value := value.(type) {
	case []any:
		for i, element := range value {
			walkSchemas(element, append(path, strconv.Itoa(i)), visit)
		}
	case map[string]any:
		visit(value, path)
		for _, keyword := range slices.Sorted(maps.Keys(value)) {
			inner := append(path, pointerStep(keyword))
			switch keyword {
			case "const", "enum", "default", "examples":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
				named, _ := value[keyword].(map[string]any)
				for _, name := range slices.Sorted(maps.Keys(named)) {
					walkSchemas(named[name], append(inner, pointerStep(name)), visit)
				}
			default:
				walkSchemas(value[keyword], inner, visit)
			}
		}
	}
}

// pointerStep escapes and shortens a name for a JSON pointer.
func pointerStep(name string) string { return pointer.Replace(textfmt.Shorten(name, 64)) }

// dropFormats removes the keyword format everywhere in a schema, so that a format never
// refuses an answer. The library would check formats in draft 7 and earlier drafts, but
// not in later drafts. A format is a hint for servers and clients: pydantic, for
// example, writes date-time for values that may lack a time zone.
func dropFormats(document any) {
	walkSchemas(document, nil, func(schema map[string]any, _ []string) {
		if _, is := schema["format"].(string); is {
			delete(schema, "format")
		}
	})
}
