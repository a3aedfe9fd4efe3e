package ingest

import "strings"

// dataBytes is from where on a string without a blank is taken for encoded data,
// such as an image: no word is as long, and a model sees some hundred tokens of it
// and not one for every few bytes.
const dataBytes = 1 << 10

// withoutData is the JSON of a request without the long strings in it that are
// encoded data, which no tokenizer of texts can count.
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
