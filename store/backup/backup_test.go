package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/backup"
)

// A file is the contents and time of a file in a tree.
type file struct {
	text     string
	modified time.Time
}

// tree writes a folder of records and objects, and returns its files.
func tree(t testing.TB) (folder string, files map[string]file) {
	t.Helper()
	folder, files = t.TempDir(), map[string]file{}
	for i, name := range []string{
		"rowmill.db", "objects/deployment.json", "objects/jobs/job-1/input/shard-000000", "objects/jobs/job-1/results/full-1-a.parquet",
		"objects/files/file-1", "objects/files/file-1+type", "objects/jobs/" + strings.Repeat("long", 60) + "/" + strings.Repeat("name", 60),
	} {
		at := time.Unix(1_700_000_000+int64(i), 123_456_789).UTC()
		files[name] = file{strings.Repeat(name, i*1000), at}
		path := filepath.Join(folder, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(files[name].text), 0o600)
		}
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		must.Succeed(t, err)
	}
	return folder, files
}

// archive returns an archive of a tree.
func archive(t testing.TB) (text []byte, files map[string]file) {
	t.Helper()
	folder, files := tree(t)
	h := backup.Header{Version: "1.2.3", Deployment: "d", At: time.Unix(1_800_000_000, 5).UTC()}
	must.Succeed(t, h.CountFiles(folder))
	var out bytes.Buffer
	must.Succeed(t, backup.Write(t.Context(), &out, h, folder))
	return out.Bytes(), files
}

// found returns the files in a directory, and an entry for each empty folder.
func found(t testing.TB, directory string) map[string]file {
	t.Helper()
	files := map[string]file{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, _ := filepath.Rel(directory, path)
		if entry.IsDir() {
			if inside, err := os.ReadDir(path); err != nil || len(inside) == 0 {
				files[name+"/"] = file{}
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %v", name, mode)
		}
		files[name] = file{string(text), info.ModTime().UTC()}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

func TestRestore_RestoresEveryByte(t *testing.T) {
	t.Parallel()
	text, want := archive(t)
	directory := filepath.Join(t.TempDir(), "not", "there")
	var last int64
	h := must.Get(backup.Restore(t.Context(), bytes.NewReader(text), directory, func(h backup.Header, n int64) {
		if n < last || n > h.Bytes {
			t.Errorf("%d bytes of %d after %d", n, h.Bytes, last)
		}
		last = n
	}))(t)
	if got := found(t, directory); !maps.Equal(got, want) {
		t.Errorf("restored %v", got)
	}
	if h.Files != int64(len(want)) || h.Version != "1.2.3" || last != h.Bytes {
		t.Errorf("header %+v after %d bytes", h, last)
	}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(text), directory, nil); err == nil || !strings.Contains(err.Error(), "is not empty, it contains objects") {
		t.Errorf("restored into a directory that is not empty: %v", err)
	}
}

// tar and sha256sum can read an archive.
func TestWrite_TarAndSha256sumReadIt(t *testing.T) {
	t.Parallel()
	text, _ := archive(t)
	directory := t.TempDir()
	for _, command := range []string{"tar -x", "sha256sum --quiet -c checksums.sha256"} {
		words := strings.Fields(command)
		if _, err := exec.LookPath(words[0]); err != nil {
			t.Skipf("%s is not installed", words[0])
		}
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir, cmd.Stdin = directory, bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// A truncated archive is refused, and nothing is left in the directory.
func TestRestore_CutOff(t *testing.T) {
	t.Parallel()
	text, _ := archive(t)
	end := len(bytes.TrimRight(text, "\x00"))
	for n := 0; n < end; n += 1 + n/20 {
		directory := t.TempDir()
		_, err := backup.Restore(t.Context(), bytes.NewReader(text[:n]), directory, nil)
		if !errors.Is(err, backup.ErrCutOff) {
			t.Errorf("%d bytes of %d: %v", n, end, err)
		}
		if left := found(t, directory); len(left) > 0 {
			t.Errorf("%d bytes of %d left %v", n, end, left)
		}
	}
}

// edited returns the archive after edit has changed its entries. A nil text removes an
// entry.
func edited(t testing.TB, text []byte, edit func(h *tar.Header, text []byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(text)), tar.NewWriter(&out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Succeed(t, err)
		content, err := io.ReadAll(r)
		must.Succeed(t, err)
		content = edit(h, append([]byte{}, content...))
		if content == nil {
			continue
		}
		h.Size = int64(len(content))
		must.Succeed(t, w.WriteHeader(h))
		must.Get(w.Write(content))(t)
	}
	must.Succeed(t, w.Close())
	return out.Bytes()
}

func TestRestore_Refuses(t *testing.T) {
	t.Parallel()
	text, _ := archive(t)
	shard := "objects/jobs/job-1/input/shard-000000"
	change := func(name string, change func(h *tar.Header, text []byte) []byte) []byte {
		return edited(t, text, func(h *tar.Header, text []byte) []byte {
			if h.Name == name {
				return change(h, text)
			}
			return text
		})
	}
	drop := func(*tar.Header, []byte) []byte { return nil }
	renamed := func(to string) []byte {
		return change(shard, func(h *tar.Header, text []byte) []byte { h.Name = to; return text })
	}
	for _, test := range []struct {
		name, want string
		text       []byte
	}{
		{"a byte was changed", "damaged: the contents of " + shard, change(shard, func(_ *tar.Header, text []byte) []byte { text[7]++; return text })},
		{"a file is missing", "damaged", change(shard, drop)},
		{"a file is shorter", "damaged", change(shard, func(_ *tar.Header, text []byte) []byte { return text[:9] })},
		{"no checksums", "manifest.json", change("checksums.sha256", drop)},
		{"no manifest", "cut off", change("manifest.json", drop)},
		{"no header", "its first file is", change("backup.json", drop)},
		{"no records", "damaged", change("rowmill.db", drop)},
		{"a newer format", "made by rowmill 9.0.0; this program reads up to format 1", change("backup.json", func(*tar.Header, []byte) []byte {
			return []byte(`{"rowmill_backup":2,"version":"9.0.0"}`)
		})},
		{"no format", "has no format version", change("backup.json", func(*tar.Header, []byte) []byte { return []byte(`{}`) })},
		{"a path with ..", "not a rowmill backup", renamed("objects/../../evil")},
		{"an absolute path", "not a rowmill backup", renamed("/etc/passwd")},
		{"a file with another name", "not a rowmill backup", renamed("rowmill.db.bak")},
		{"a link", "not a regular file", change(shard, func(h *tar.Header, _ []byte) []byte {
			h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc/passwd"
			return []byte{}
		})},
		{"compressed", "decompress a compressed", append([]byte{0x1f, 0x8b, 8, 0}, bytes.Repeat([]byte{1}, 1000)...)},
		{"a text", "not a tar archive", bytes.Repeat([]byte("a text\n"), 200)},
		{"files twice", "", append(append([]byte{}, bytes.TrimRight(text, "\x00")...), text...)},
	} {
		directory := t.TempDir()
		_, err := backup.Restore(t.Context(), bytes.NewReader(test.text), directory, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if left := found(t, directory); len(left) > 0 {
			t.Errorf("%s: left %v", test.name, left)
		}
	}
}

func TestRestore_IntoUsedDirectory(t *testing.T) {
	t.Parallel()
	text, _ := archive(t)
	directory := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(directory, "restoring"), 0o700))
	if _, err := backup.Restore(t.Context(), bytes.NewReader(text), directory, nil); err == nil || !strings.Contains(err.Error(), "remove that folder") {
		t.Errorf("with an unfinished restore in the directory: %v", err)
	}
	// A node that starts in the directory during a restore keeps its records.
	directory = t.TempDir()
	records := filepath.Join(directory, "rowmill.db")
	_, err := backup.Restore(t.Context(), bytes.NewReader(text), directory, func(_ backup.Header, n int64) {
		if err := os.WriteFile(records, []byte("others"), 0o600); err != nil {
			t.Error(err)
		}
	})
	if kept, _ := os.ReadFile(records); err == nil || string(kept) != "others" {
		t.Errorf("with a node in the directory: %v, its records are %q", err, kept)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	directory = t.TempDir()
	if _, err := backup.Restore(ctx, bytes.NewReader(text), directory, nil); !errors.Is(err, context.Canceled) || len(found(t, directory)) > 0 {
		t.Errorf("cancelled: %v", err)
	}
}

// A folder that changes after CountFiles makes no valid archive.
func TestWrite_RefusesChangedFolder(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(folder string) error{
		"a file was removed":     func(folder string) error { return os.Remove(filepath.Join(folder, "objects/files/file-1")) },
		"a file was added":       func(folder string) error { return os.WriteFile(filepath.Join(folder, "objects/a"), nil, 0o600) },
		"the folder was removed": os.RemoveAll,
	} {
		folder, _ := tree(t)
		var h backup.Header
		must.Succeed(t, h.CountFiles(folder))
		must.Succeed(t, change(folder))
		var out bytes.Buffer
		if err := backup.Write(t.Context(), &out, h, folder); err == nil {
			t.Errorf("%s: written", name)
		}
		if _, err := backup.Read(t.Context(), &out, backup.Discard, nil); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

// FuzzRead changes an archive: if Read accepts it, all files are as written, byte for
// byte.
func FuzzRead(f *testing.F) {
	text, files := archive(f)
	f.Add(uint(0), []byte{0})
	f.Add(uint(600), []byte("99"))
	f.Add(uint(len(text)-2000), []byte("x"))
	f.Fuzz(func(t *testing.T, at uint, with []byte) {
		changed := append([]byte{}, text...)
		copy(changed[at%uint(len(changed)):], with)
		got := map[string]string{}
		_, err := backup.Read(t.Context(), bytes.NewReader(changed), func(name string, _ time.Time, content io.Reader) error {
			text, err := io.ReadAll(content)
			got[name] = string(text)
			return err
		}, nil)
		if err != nil {
			return
		}
		for name, want := range files {
			if got[name] != want.text {
				t.Errorf("Read accepted a changed %s", name)
			}
		}
		if len(got) != len(files) {
			t.Errorf("%d files of %d", len(got), len(files))
		}
	})
}

// The header and the manifest describe the contents.
func TestWrite_Documents(t *testing.T) {
	t.Parallel()
	text, files := archive(t)
	var names []string
	documents := map[string]map[string]any{}
	edited(t, text, func(h *tar.Header, text []byte) []byte {
		names = append(names, h.Name)
		if strings.HasSuffix(h.Name, ".json") && !strings.HasPrefix(h.Name, "objects/") {
			var d map[string]any
			if err := json.Unmarshal(text, &d); err != nil {
				t.Error(err)
			}
			documents[h.Name] = d
		}
		return text
	})
	if names[0] != "backup.json" || names[1] != "rowmill.db" || names[len(names)-2] != "checksums.sha256" || names[len(names)-1] != "manifest.json" {
		t.Errorf("the order is %v", names)
	}
	for name, d := range documents {
		if d["rowmill_backup"] != 1.0 || d["files"] != float64(len(files)) || d["deployment"] != "d" || d["at"] != "2027-01-15T08:00:00.000000005Z" {
			t.Errorf("%s: %v", name, d)
		}
	}
	if len(documents) != 2 {
		t.Errorf("%d documents", len(documents))
	}
}
