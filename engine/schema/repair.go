package schema

import (
	"encoding/json"
	"strings"
)

// maxBeginnings limits the braces and brackets of an answer from which FindJSON tries
// to read JSON. Text before the JSON seldom has many of them.
const maxBeginnings = 64

// FindJSON returns the first JSON object or array in an answer for which conforms
// returns true. It finds JSON that a model has put between words or into a code fence.
// ok is false if there is no such JSON.
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
