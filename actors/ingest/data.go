package ingest

import "strings"

// dataBytes is the minimum length of a string without spaces that counts as encoded
// data, such as an image. No word is that long. A model computes a few hundred tokens
// for an image, not tokens in proportion to the length of the string.
const dataBytes = 1 << 10

// stripEncodedData returns the JSON of a request without long strings of encoded data,
// because a tokenizer for texts cannot count their tokens.
func stripEncodedData(body string) string {
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
		if body != "" { // body begins with the closing quote
			kept.WriteByte('"')
			body = body[1:]
		}
	}
	kept.WriteString(body)
	return kept.String()
}
