package schema

import (
	"encoding/json"
	"strings"
)

// maxBeginnings bounds the places of an answer where JSON is looked for: prose has few
// braces and brackets before the JSON that it speaks of.
const maxBeginnings = 64

// Inside returns the first JSON object or array in an answer that conforms: models put
// words or a code fence around their JSON. It returns false if there is none.
func Inside(answer string, conforms func(text string) bool) (found string, ok bool) {
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
