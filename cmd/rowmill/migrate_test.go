package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/backup"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestMigrateCommand(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	// migrate ignores the variables of a node: all of these would be wrong.
	environ := []string{"ROWMILL_DATA=" + at("environment"), "ROWMILL_CONFIG=" + at("none.yaml")}
	migrate := func(code int, stdin string, words string, args ...string) string {
		t.Helper()
		got, out, said := runCommand(t.Context(), environ, stdin, append([]string{"migrate"}, args...)...)
		if text := out + said; got != code || !strings.Contains(text, words) {
			t.Errorf("rowmill migrate %s: code %d, want %d and %q\n%s", strings.Join(args, " "), got, code, words, text)
		}
		return out
	}
	m := settled(t, prepare(t, at("data"), nil))
	storetest.FillStore(t, m.Storage.Store, time.Now())
	leave(t, m.Storage.Bucket, "results/full-1-a.parquet")
	closed(t, m)

	migrate(2, "", "name both", "--from", at("data"))
	migrate(2, "", "there is no", "--from", at("none"), "--to", at("new"))
	migrate(2, "", "the same place", "--from", at("data"), "--to", folder+"/./data")
	if _, err := os.Stat(at("none")); err == nil {
		t.Error("a place that was not there was made")
	}
	if out := migrate(0, "", "compared, no difference", "--from", at("data"), "--to", at("new")); !strings.Contains(out, "2 key, ") {
		t.Errorf("it says %q", out)
	}
	migrate(1, "", "not empty", "--from", at("data"), "--to", at("new"), "--force")

	var archive bytes.Buffer
	h := backup.Header{Version: "v", Deployment: m.Storage.deployment.ID, At: time.Now().UTC()}
	must.Succeed(t, h.CountFiles(at("data")))
	must.Succeed(t, backup.Write(t.Context(), &archive, h, at("data")))
	whole := archive.String()
	migrate(1, whole[:len(whole)-4096], "cut off", "--from", "-", "--to", at("archived"))
	migrate(1, whole, "--force", "--from", "-", "--to", at("archived"))
	migrate(0, whole, "compared, no difference", "--from", "-", "--to", at("archived"), "--force")
	must.Succeed(t, os.WriteFile(at("a.tar"), archive.Bytes(), 0o600))
	migrate(2, "", "an archive cannot be moved to", "--from", at("data"), "--to", at("a.tar"))
	quoted := must.Get(json.Marshal(at("filed")))(t)
	must.Succeed(t, os.WriteFile(at("a.yaml"), append([]byte("data: "), quoted...), 0o600))
	migrate(0, "", "filed", "--from", at("a.tar"), "--to", at("a.yaml"))
	if _, err := os.Stat(at("environment")); err == nil {
		t.Error("a variable said where to")
	}
}
