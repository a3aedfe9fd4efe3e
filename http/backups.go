package http

import (
	"bufio"
	"context"
	"errors"
	"io"
	nethttp "net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
)

// A Vault is a node whose records and objects can be copied while it runs.
type Vault interface {
	// Backup holds records and objects as they are at one moment, which takes no
	// longer than a copy of the records and a name for each object. It is
	// rowmill.ErrConflict while another is held, ErrNoBackup where they are not
	// this node's alone.
	Backup(ctx context.Context) (Backup, error)
}

// ErrNoBackup says that a node does not keep its records and objects itself.
var ErrNoBackup = errors.New("records or objects are not in the data directory of this node")

// A Backup is held until Close.
type Backup interface {
	At() time.Time
	// Write writes the archive, see package backup.
	Write(ctx context.Context, w io.Writer) error
	Close() error
}

// backups are the copies of a node.
type backups struct {
	*exchange.Exchange
	vault Vault
	audit *auditor
}

// mediaTar is the media type of an archive.
const mediaTar = "application/x-tar"

// make answers POST /v1/backup.
func (b *backups) make(c *gin.Context) error {
	if err := operates(c); err != nil {
		return err
	}
	var held Backup
	err := b.audit.record(c, act{actBackup, DefaultAccount, "", nil}, func(ctx context.Context) (err error) {
		held, err = b.vault.Backup(ctx)
		return backupError(err)
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := held.Close(); err != nil {
			b.Logger.Warn("what a backup held could not be removed; the next start removes it", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
		}
	}()
	return b.Stream(c, mediaTar, "rowmill-"+held.At().UTC().Format("20060102T150405Z")+".tar", func(w *bufio.Writer) error {
		return held.Write(c.Request.Context(), w)
	})
}

func backupError(err error) error {
	switch {
	case errors.Is(err, ErrNoBackup):
		return request.Errorf(nethttp.StatusConflict, "no_backup",
			"%v: Redis and the bucket are backed up by themselves, docs/backup.md says in which order", err)
	case errors.Is(err, rowmill.ErrConflict):
		return request.Errorf(nethttp.StatusConflict, "backup_under_way", "a backup of this node is being made; wait for its end, or break it off where it is being received")
	}
	return err
}
