package client

import (
	"context"
	"encoding/json"
)

// Keys lists all keys of an account, oldest first, with one request per page. An empty
// account means the account of the client's key, or all accounts if that key belongs to
// an administrator of the account default. Answer.Raw has the keys of all pages in one
// list.
func (c *Client) Keys(ctx context.Context, account string) ([]Key, Answer, error) {
	var all []Key
	var texts []json.RawMessage
	params := ListKeysParams{Account: account}
	for pages := 1; ; pages++ {
		page, answer, err := c.ListKeys(ctx, params)
		if err != nil {
			return nil, Answer{}, err
		}
		var raw struct{ Keys []json.RawMessage }
		_ = json.Unmarshal(answer.Raw, &raw) // never fails: page was decoded from the same text
		all, texts = append(all, page.Keys...), append(texts, raw.Keys...)
		if params.Cursor = page.NextCursor; params.Cursor != "" {
			continue
		}
		if pages > 1 {
			answer.Raw, _ = json.Marshal(map[string][]json.RawMessage{"keys": texts}) // never fails for valid JSON
		}
		return all, answer, nil
	}
}
