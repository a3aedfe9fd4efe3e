package client

import (
	"context"
	"io"
	"net/http"
)

// Backup writes an archive of all that a node keeps to w, as it comes. It needs an
// administrator's key of the account default. What w has got is whole only where no
// error is returned; it cannot be taken up again.
func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := c.request(ctx, http.MethodPost, "/v1/backup", nil, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return c.copy(ctx, cancel, w, resp.Body, nil)
}
