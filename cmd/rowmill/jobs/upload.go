package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// uploadAbove is the size in bytes above which a table is uploaded in parts and not
// sent with the submission. A smaller table can be sent again quickly after a broken
// connection.
const uploadAbove = 8 << 20

// uploadInput uploads a table to the service and returns the ID of the uploaded file. It
// saves its progress, so that the same command continues after an interruption. The
// caller calls onJobCreated after the job is created: onJobCreated deletes the saved
// progress, and the file on the service.
func (c *jobCommands) uploadInput(ctx context.Context, api *client.Client, in *localInput) (file string, onJobCreated func(), err error) {
	note := newUploadProgressFile(api, in)
	progress := terminal.NewProgress(c.Term)
	u := client.Upload{Name: filepath.Base(in.file.Name()), Size: in.size, File: in.file, From: note.read(), Save: note.write}
	if u.From.Upload != "" {
		c.Term.Say("continuing the unfinished upload of %s", in.name)
	}
	u.Progress = func(done, total int64) {
		progress.Update(terminal.ProgressSnapshot{Now: c.Term.Now(), Phase: "upload", Done: done, Total: total, Size: true})
	}
	file, err = api.Upload(ctx, u)
	progress.Clear()
	if err != nil {
		return "", nil, err
	}
	return file, func() {
		note.remove()
		if _, _, err := api.DeleteFile(ctx, file); err != nil {
			c.Term.Say("warning: the uploaded copy of %s stays on the service for up to 30 days: %v", in.name, err)
		}
	}, nil
}

// An uploadProgressFile is a local file that holds the progress of an upload. If this file
// is lost or wrong, the upload starts again.
type uploadProgressFile struct{ path string }

// newUploadProgressFile returns the uploadProgressFile for the upload of an input to a
// service. If the input has changed, the result is another uploadProgressFile. An
// uploadProgressFile without a path saves nothing.
func newUploadProgressFile(api *client.Client, in *localInput) uploadProgressFile {
	dir, err := os.UserCacheDir()
	if err != nil || in.temp {
		return uploadProgressFile{}
	}
	path, err := filepath.Abs(in.file.Name())
	if err != nil {
		return uploadProgressFile{}
	}
	info, err := in.file.Stat()
	if err != nil {
		return uploadProgressFile{}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n%d", api.Server(), path, info.Size(), info.ModTime().UnixNano()))
	return uploadProgressFile{filepath.Join(dir, "rowmill", "uploads", hex.EncodeToString(sum[:12])+".json")}
}

func (n uploadProgressFile) read() (u client.Uploaded) {
	content, err := os.ReadFile(n.path)
	if err != nil || json.Unmarshal(content, &u) != nil {
		return client.Uploaded{}
	}
	return u
}

func (n uploadProgressFile) write(u client.Uploaded) {
	content, err := json.Marshal(u)
	if err != nil || n.path == "" || os.MkdirAll(filepath.Dir(n.path), 0o700) != nil {
		return
	}
	temporary := n.path + ".new"
	if os.WriteFile(temporary, content, 0o600) == nil {
		_ = os.Rename(temporary, n.path)
	}
}

func (n uploadProgressFile) remove() { _ = os.Remove(n.path) }
