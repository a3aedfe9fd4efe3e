package ingest

import "strings"

// dataBytes is the length from which a string without a blank counts as encoded data,
// such as an image. No word is that long, and a model gets some hundred tokens for such
// data, not one for every few bytes.
const dataBytes = 1 << 10

// withoutData returns the JSON of a request without long strings of encoded data,
// because no tokenizer for texts can count their tokens.
func withoutData(body string) string {
	if len(body) < dataBytes {
		return body
	}
	var kept strings.Builder
	for {
		open := strings.IndexByte(body, '"')
		if open < 0 {
			break
		}
		end := open + 1
		for end < len(body) && body[end] != '"' {
			if body[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(body))
		if text := body[open+1 : end]; len(text) < dataBytes || strings.ContainsAny(text, " \\") {
			kept.WriteString(body[:end])
		} else {
			kept.WriteString(body[:open+1])
		}
		body = body[end:]
		if body != "" { // the closing quote
			kept.WriteByte('"')
			body = body[1:]
		}
	}
	kept.WriteString(body)
	return kept.String()
}
