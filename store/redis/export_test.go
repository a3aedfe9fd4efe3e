package redis

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/rowmill/rowmill/store/storetest"
)

// SetSchema says that the records are of a version, as a newer program does.
func (s *Store) SetSchema(ctx context.Context, version int) error {
	return s.client.HSet(ctx, s.key("meta"), "schema", version).Err()
}

// EditDocuments goes over all documents, as storetest.Harness says.
func (s *Store) EditDocuments(ctx context.Context, edit func(kind, id string, doc []byte) []byte) error {
	for _, of := range []struct {
		pattern string
		edit    func(key, name, value string) string
	}{
		{"job:", func(job, name, value string) string {
			switch name {
			case "head":
				return string(edit(storetest.DocJob, job, []byte(value)))
			case "spec":
				return string(edit(storetest.DocSpec, job, []byte(value)))
			case "status":
				quoted, _ := json.Marshal(value) // a string can be encoded
				var after string
				_ = json.Unmarshal(edit(storetest.DocStatus, job, quoted), &after)
				return after
			}
			return value
		}},
		{"parts:", func(job, name, value string) string {
			words := strings.SplitN(value, " ", 5)
			words[4] = string(edit(storetest.DocPart, job+" "+name, []byte(words[4])))
			return strings.Join(words, " ")
		}},
		{"deliveries", func(_, name, value string) string {
			words := strings.SplitN(value, " ", 3)
			words[2] = string(edit(storetest.DocDelivery, name, []byte(words[2])))
			return strings.Join(words, " ")
		}},
		{"keys", func(_, name, value string) string { return string(edit(storetest.DocKey, name, []byte(value))) }},
	} {
		pattern := s.key(of.pattern)
		if strings.HasSuffix(pattern, ":") {
			pattern += "*"
		}
		keys, err := s.client.Keys(ctx, pattern).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			values, err := s.client.HGetAll(ctx, key).Result()
			if err != nil {
				return err
			}
			for name, value := range values {
				if err := s.client.HSet(ctx, key, name, of.edit(strings.TrimPrefix(key, s.key(of.pattern)), name, value)).Err(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
