package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
)

// TestImage_LikeDockerfile compares the process settings of the image with the last
// stage of deploy/Dockerfile.
func TestImage_LikeDockerfile(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../Dockerfile"))(t)
	_, stage, found := strings.Cut(string(text), "\nFROM scratch AS rowmill\n")
	if !found {
		t.Fatal("deploy/Dockerfile has no stage rowmill")
	}
	said := imageProcess{ExposedPorts: map[string]struct{}{}, Volumes: map[string]struct{}{}}
	var copied []string
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch word {
		case "ENV":
			said.Env = append(said.Env, strings.Fields(rest)...)
		case "USER":
			said.User = rest
		case "VOLUME":
			said.Volumes[rest] = struct{}{}
		case "EXPOSE":
			for port := range strings.FieldsSeq(rest) {
				if !strings.Contains(port, "/") {
					port += "/tcp"
				}
				said.ExposedPorts[port] = struct{}{}
			}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &said.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &said.Cmd)
		case "COPY":
			fields := strings.Fields(rest)
			copied = append(copied, fields[len(fields)-1])
		case "", "#":
		default:
			t.Errorf("this test does not know %s", word)
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	is := (&release{}).imageProcessConfig()
	is.Labels = nil
	if diff := cmp.Diff(said, is); diff != "" {
		t.Errorf("deploy/Dockerfile (-) and the image (+) differ:\n%s", diff)
	}
	if want := []string{"/etc/ssl/certs/", "/rowmill", "/data"}; !slices.Equal(copied, want) {
		t.Errorf("deploy/Dockerfile copies %v, the image has %v", copied, want)
	}
}

func TestImageLayout(t *testing.T) {
	t.Parallel()
	certificates := filepath.Join(t.TempDir(), "certificates")
	must.Succeed(t, os.WriteFile(certificates, []byte("CERTIFICATES"), 0o600))
	make := func() []byte {
		r := &release{
			version: "v1.2.3", commit: "abc", built: time.Unix(1e9, 0).UTC(), certificates: certificates, to: t.TempDir(), licenses: []byte("LICENCES"),
			programs: []*releaseBinary{{arch: "amd64", bytes: []byte("FOR AMD64")}, {arch: "arm64", bytes: []byte("FOR ARM64")}},
		}
		must.Succeed(t, r.writeImage(t.Context()))
		b := must.Get(os.ReadFile(filepath.Join(r.to, "rowmill-1.2.3-oci.tar")))(t)
		return b
	}
	b := make()
	if !bytes.Equal(b, make()) {
		t.Error("packed twice, the images differ")
	}
	files := untar(t, b)
	if string(files["oci-layout"].bytes) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", files["oci-layout"].bytes)
	}
	for name, f := range files {
		if hash, is := strings.CutPrefix(name, "blobs/sha256/"); is && hash != "" && sha256Digest(f.bytes) != "sha256:"+hash {
			t.Errorf("%s is %s", name, sha256Digest(f.bytes))
		}
	}
	blob := func(d descriptor) []byte {
		b := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)].bytes
		if len(b) == 0 || len(b) != d.Size {
			t.Fatalf("%s has %d bytes, not %d", d.Digest, len(b), d.Size)
		}
		return b
	}
	outer := parse[imageIndex](t, files["index.json"].bytes)
	if len(outer.Manifests) != 1 || outer.Manifests[0].MediaType != indexType || outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("index.json is %+v", outer)
	}
	index := parse[imageIndex](t, blob(outer.Manifests[0]))
	for i, arch := range []string{"amd64", "arm64"} {
		d := index.Manifests[i]
		manifest := parse[imageManifest](t, blob(d))
		config := parse[imageConfig](t, blob(manifest.Config))
		if d.Platform.Architecture != arch || config.Architecture != arch || config.OS != "linux" || config.Created != "2001-09-09T01:46:40Z" {
			t.Errorf("image %d: %+v, %+v", i, d, config)
		}
		if config.Config.User != "65532:65532" || config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
			t.Errorf("image %d: %+v", i, config.Config)
		}
		unpacked := must.Get(gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0]))))(t)
		layer := must.Get(io.ReadAll(unpacked))(t)
		if want := []string{sha256Digest(layer)}; !slices.Equal(config.RootFS.DiffIDs, want) {
			t.Errorf("image %d: the layer is %v, not %v", i, want, config.RootFS.DiffIDs)
		}
		in := untar(t, layer)
		if string(in["rowmill"].bytes) != "FOR "+strings.ToUpper(arch) || in["rowmill"].mode != 0o755 || in["rowmill"].owner != 0 {
			t.Errorf("image %d: the program is %+v", i, in["rowmill"])
		}
		if string(in["etc/ssl/certs/ca-certificates.crt"].bytes) != "CERTIFICATES" || string(in["licenses.txt"].bytes) != "LICENCES" {
			t.Errorf("image %d has %v", i, in)
		}
		if in["data/"].owner != imageUser {
			t.Errorf("image %d: /data belongs to %d", i, in["data/"].owner)
		}
	}
}

func untar(t *testing.T, b []byte) map[string]tarEntry {
	t.Helper()
	files := map[string]tarEntry{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // by the contract of the package
			return files
		}
		must.Succeed(t, err)
		content, err := io.ReadAll(r)
		must.Succeed(t, err)
		files[h.Name] = tarEntry{name: h.Name, mode: h.Mode, owner: h.Uid, bytes: content}
	}
}

func parse[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	must.Succeed(t, d.Decode(&v))
	return v
}

// Both units have the same sandbox: they differ only in the places of settings and
// data.
func TestUnits_SameSandbox(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`(?m)^(Description|EnvironmentFile|Environment|ExecStart|StateDirectory)=.*\n`)
	var units [2]string
	for i, name := range []string{"rowmill.service", "rowmill-node@.service"} {
		text := must.Get(os.ReadFile("../package/" + name))(t)
		if n := len(own.FindAll(text, -1)); n != 5 {
			t.Errorf("%s has %d lines of its own", name, n)
		}
		units[i] = own.ReplaceAllString(string(text), "")
	}
	if diff := cmp.Diff(units[0], units[1]); diff != "" {
		t.Errorf("rowmill.service (-) and rowmill-node@.service (+):\n%s", diff)
	}
}
