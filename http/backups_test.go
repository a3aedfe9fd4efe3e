package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/internal/must"
)

// A heldText is a backup with a text as its archive.
type heldText struct {
	text   string
	err    error // returned after the text
	closed *int
}

func (h heldText) SnapshotTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
func (h heldText) Close() error            { *h.closed++; return nil }

func (h heldText) Write(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, h.text)
	return errors.Join(err, h.err)
}

func TestBackup(t *testing.T) {
	t.Parallel()
	w := setup(t)
	closed := 0
	w.service.backup = func() (nodes.BackupSnapshot, error) { return heldText{text: "an archive", closed: &closed}, nil }
	got := w.do("POST", "/v1/backup", "").want(200)
	if string(got.text) != "an archive" || got.header.Get("Content-Type") != "application/x-tar" ||
		got.header.Get("Content-Disposition") != `attachment; filename="rowmill-20260102T030405Z.tar"` || closed != 1 {
		t.Errorf("%q %v, closed %d times", got.text, got.header, closed)
	}
	entries, _, err := w.store.ListAudit(t.Context(), caller.DefaultAccount, 10, "")
	if err != nil || len(entries) != 1 || entries[0].Action != "backup.make" {
		t.Errorf("the audit record has %+v, %v", entries, err)
	}

	w.service.backup = nil
	if got := w.do("POST", "/v1/backup", "").want(409); !strings.Contains(string(got.text), `"no_backup"`) {
		t.Errorf("of a node on Redis: %s", got.text)
	}
	w.service.backup = func() (nodes.BackupSnapshot, error) { return nil, fmt.Errorf("another: %w", rowmill.ErrConflict) }
	if got := w.do("POST", "/v1/backup", "").want(409); !strings.Contains(string(got.text), `"backup_under_way"`) {
		t.Errorf("beside another: %s", got.text)
	}
}

// If a backup fails in the middle, the answer must not end like a complete one.
func TestBackup_FailsInTheMiddle(t *testing.T) {
	t.Parallel()
	w := setup(t)
	closed := 0
	w.service.backup = func() (nodes.BackupSnapshot, error) {
		return heldText{strings.Repeat("much ", 100_000), errors.New("the disk fails"), &closed}, nil
	}
	request, err := nethttp.NewRequestWithContext(t.Context(), "POST", w.http.URL+"/v1/backup", nil)
	must.Succeed(t, err)
	request.Header.Set("Authorization", "Key "+adminKey)
	response, err := w.http.Client().Do(request)
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	if err == nil || closed != 1 {
		t.Errorf("half a backup ends with %v, closed %d times", err, closed)
	}
}
