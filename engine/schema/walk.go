package schema

import (
	"maps"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill/internal/textfmt"
)

// walkSchemas calls visit for the schema and for every object inside it that may be a
// schema, in the order of names. path has the steps of the object's JSON pointer.
// walkSchemas leaves out values that only look like schemas, such as constants.
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

// dropFormats removes every format from a schema, so that formats refuse no answer. The
// library would check formats of draft 7 and earlier, but not of later drafts. A format
// is a hint for servers and clients: pydantic, for example, writes date-time for values
// that may lack a time zone.
func dropFormats(document any) {
	walkSchemas(document, nil, func(schema map[string]any, _ []string) {
		if _, is := schema["format"].(string); is {
			delete(schema, "format")
		}
	})
}
