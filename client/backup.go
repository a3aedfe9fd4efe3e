package client

import (
	"context"
	"io"
	"net/http"
)

// Backup streams an archive of all data of a node to w. It needs an administrator's key
// of the account default. The archive is complete only if Backup returns no error.
// Backup returns the size of the archive in bytes. A broken transfer cannot be resumed.
func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	return c.streamAnswer(ctx, http.MethodPost, "/v1/backup", nil, w)
}
