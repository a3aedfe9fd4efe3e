package cluster

import (
	"context"
	"os"
	"path/filepath"

	"github.com/rowmill/rowmill/internal/s3test"
)

// s3Port is the port of the S3 server on its own host.
const s3Port = 7070

func (c *Cluster) startS3(ctx context.Context) (err error) {
	if c.s3Host, err = newHost(ctx, c.network, "s3"); err != nil {
		return err
	}
	options := s3test.Options{Dir: filepath.Join(c.dir, "s3"), IP: c.s3Host.address}
	if c.s3Host.net != nil {
		options.Port, options.Prefix = s3Port, c.s3Host.net.CommandPrefix()
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return err
	}
	if err := c.mountBucket(options.Dir); err != nil {
		return err
	}
	c.S3, err = s3test.RunWith(ctx, options)
	return err
}
