package nodes

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
)

// ErrNoBackup means that the node cannot make a backup, because records or objects are
// stored outside its data directory.
var ErrNoBackup = errors.New("records or objects are not in the data directory of this node")

// A BackupSnapshot is a consistent snapshot of all data. It exists until Close.
type BackupSnapshot interface {
	SnapshotTime() time.Time // time of the snapshot
	// Write writes the snapshot as an archive, in the format of package backup.
	Write(ctx context.Context, w io.Writer) error
	Close() error
}

// mediaTar is the media type of a backup, which is a tar archive.
const mediaTar = "application/x-tar"

// sendBackup answers POST /v1/backup with a new backup of all data.
func (n *Nodes) sendBackup(c *gin.Context) error {
	var held BackupSnapshot
	err := n.Audit.RecordAndRun(c, audit.Action{Name: audit.Backup, Account: caller.DefaultAccount, Target: "", Details: nil}, func(ctx context.Context) (err error) {
		held, err = n.Service.Backup(ctx)
		return backupError(err)
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := held.Close(); err != nil {
			n.Logger.Warn("removing the temporary files of a backup failed, the next start removes them", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
		}
	}()
	return n.Stream(c, mediaTar, "rowmill-"+held.SnapshotTime().UTC().Format("20060102T150405Z")+".tar", func(w *bufio.Writer) error {
		return held.Write(c.Request.Context(), w)
	})
}

func backupError(err error) error {
	switch {
	case errors.Is(err, ErrNoBackup):
		return request.Errorf(http.StatusConflict, "no_backup",
			"%v: back up Redis and the bucket with their own tools, in the order of docs/backup.md", err)
	case errors.Is(err, rowmill.ErrConflict):
		return request.Errorf(http.StatusConflict, "backup_under_way", "another backup of this node is running; wait for its end, or cancel the request that receives it")
	}
	return err
}
