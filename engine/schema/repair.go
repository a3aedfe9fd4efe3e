package schema

import (
	"encoding/json"
	"strings"
)

// maxBeginnings limits the places of an answer where FindJSON looks for JSON: text
// before the JSON seldom has many braces and brackets.
const maxBeginnings = 64

// FindJSON returns the first conforming JSON object or array in an answer: models put
// words or a code fence around their JSON. It returns false if there is none.
func FindJSON(answer string, conforms func(text string) bool) (found string, ok bool) {
	for at, tries := 0, 0; tries < maxBeginnings; tries++ {
		next := strings.IndexAny(answer[at:], "{[")
		if next < 0 {
			return "", false
		}
		at += next
		var value json.RawMessage
		if json.NewDecoder(strings.NewReader(answer[at:])).Decode(&value) != nil {
			at++
			continue
		}
		if conforms(string(value)) {
			return string(value), true
		}
		at += len(value)
	}
	return "", false
}
