package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// imageUser is the ID of the user that owns /data in the image and runs the program. No
// distribution uses this number. deploy/Dockerfile must have the same number.
const imageUser = 65532

// Types of the OCI image specification.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	imageIndex struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Manifests     []descriptor      `json:"manifests"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	imageManifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	imageConfig struct {
		Created string `json:"created"`
		platform
		Config  imageProcess   `json:"config"`
		RootFS  rootFS         `json:"rootfs"`
		History []imageHistory `json:"history"`
	}
	imageProcess struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Volumes      map[string]struct{} `json:"Volumes"`
		Labels       map[string]string   `json:"Labels"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	imageHistory struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	}
)

// imageProcessConfig returns the process settings of the image, the same as in deploy/Dockerfile.
// The program only writes below /data, so everything else may be read-only.
func (r *release) imageProcessConfig() imageProcess {
	return imageProcess{
		User:         fmt.Sprintf("%d:%d", imageUser, imageUser),
		ExposedPorts: map[string]struct{}{"8088/tcp": {}, "7946/tcp": {}, "7946/udp": {}, "7947/tcp": {}},
		Env:          []string{"ROWMILL_DATA=/data", "TMPDIR=/data", "HOME=/data"},
		Entrypoint:   []string{"/rowmill"},
		Cmd:          []string{"serve"},
		Volumes:      map[string]struct{}{"/data": {}},
		Labels:       r.imageAnnotations(),
	}
}

func (r *release) imageAnnotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "Rowmill",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.created":  r.built.Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://github.com/rowmill/rowmill",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

// writeImage writes a tar in the OCI layout: one index with an image for each architecture.
func (r *release) writeImage(context.Context) error {
	certificates, err := os.ReadFile(r.certificates)
	if err != nil {
		return fmt.Errorf("%w; install Debian's package ca-certificates", err)
	}
	l := imageLayout{blobs: map[string][]byte{}}
	var images []descriptor
	for _, p := range r.programs {
		image, err := r.addImage(&l, p, certificates)
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	index, err := l.putJSONBlob(indexType, imageIndex{SchemaVersion: 2, MediaType: indexType, Manifests: images, Annotations: r.imageAnnotations()})
	if err != nil {
		return err
	}
	tag := strings.TrimPrefix(r.version, "v")
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "rowmill:" + tag}
	b, err := l.packTar(imageIndex{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{index}}, r.built)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.to, "rowmill-"+tag+"-oci.tar"), b, 0o644) //nolint:gosec // public files
}

// addImage adds the image for an architecture to the layout.
func (r *release) addImage(l *imageLayout, p *releaseBinary, certificates []byte) (descriptor, error) {
	files, err := tarFiles([]tarEntry{
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, bytes: certificates},
		{name: "data/", mode: 0o755, owner: imageUser},
		{name: "licenses.txt", mode: 0o644, bytes: r.licenses},
		{name: "rowmill", mode: 0o755, bytes: p.bytes},
	}, r.built)
	if err != nil {
		return descriptor{}, err
	}
	layer := l.putBlob(layerType, gzipBytes(files))
	created := r.built.Format(time.RFC3339)
	on := platform{Architecture: p.arch, OS: "linux"}
	config, err := l.putJSONBlob(configType, imageConfig{
		Created: created, platform: on, Config: r.imageProcessConfig(),
		RootFS:  rootFS{Type: "layers", DiffIDs: []string{sha256Digest(files)}},
		History: []imageHistory{{Created: created, CreatedBy: "make dist"}},
	})
	if err != nil {
		return descriptor{}, err
	}
	manifest, err := l.putJSONBlob(manifestType, imageManifest{SchemaVersion: 2, MediaType: manifestType, Config: config, Layers: []descriptor{layer}})
	manifest.Platform = &on
	return manifest, err
}

// An imageLayout is an OCI image layout: the content of its blobs by digest.
type imageLayout struct{ blobs map[string][]byte }

func sha256Digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func (l *imageLayout) putBlob(mediaType string, b []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: sha256Digest(b), Size: len(b)}
	l.blobs[d.Digest] = b
	return d
}

func (l *imageLayout) putJSONBlob(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	return l.putBlob(mediaType, b), err
}

func (l *imageLayout) packTar(index imageIndex, built time.Time) ([]byte, error) {
	b, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	entries := []tarEntry{
		{name: "blobs/", mode: 0o755},
		{name: "blobs/sha256/", mode: 0o755},
		{name: "index.json", mode: 0o644, bytes: b},
		{name: "oci-layout", mode: 0o644, bytes: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}
	for name, b := range l.blobs {
		entries = append(entries, tarEntry{name: "blobs/" + strings.Replace(name, ":", "/", 1), mode: 0o644, bytes: b})
	}
	return tarFiles(entries, built)
}
