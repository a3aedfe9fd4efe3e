package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill/internal/notice"
)

// A billOfMaterials is a bill of materials in the format CycloneDX 1.6.
type (
	billOfMaterials struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		SerialNumber string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     billMetadata `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	billMetadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string          `json:"type"`
		Ref        string          `json:"bom-ref"`
		Name       string          `json:"name"`
		Version    string          `json:"version"`
		Hashes     []checksum      `json:"hashes,omitempty"`
		Licenses   []licenseChoice `json:"licenses"`
		PURL       string          `json:"purl"`
		Properties []property      `json:"properties,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	licenseChoice struct {
		Expression string `json:"expression"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// writeBillsOfMaterials writes a bill of materials for each binary.
func (r *release) writeBillsOfMaterials(context.Context) error {
	licences, err := notice.Read("NOTICE")
	if err != nil {
		return err
	}
	for _, p := range r.programs {
		b, err := r.buildBillOfMaterials(p, licences)
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.releasePath(p.arch, ".cdx.json"), append(text, '\n'), 0o644); err != nil { //nolint:gosec // public files
			return err
		}
	}
	return nil
}

// buildBillOfMaterials returns the bill of materials of a binary: the modules that Go records in the
// binary, the libraries of Go and C, and the packages in the console.
func (r *release) buildBillOfMaterials(p *releaseBinary, licences map[string]string) (billOfMaterials, error) {
	version := strings.TrimPrefix(r.version, "v")
	self := component{
		Type: "application", Name: "rowmill", Version: version, PURL: packageURL("golang", p.build.Main.Path, r.version),
		Hashes:   []checksum{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(p.bytes))}},
		Licenses: []licenseChoice{{"Apache-2.0"}},
		Properties: []property{
			{"rowmill:arch", p.arch}, {"rowmill:commit", r.commit}, {"rowmill:go", p.build.GoVersion}, {"rowmill:tags", buildSetting(p, "-tags")},
		},
	}
	parts := []component{
		newComponent(packageURL("golang", "std", strings.TrimPrefix(p.build.GoVersion, "go")), "std", strings.TrimPrefix(p.build.GoVersion, "go"), "BSD-3-Clause"),
		newComponent(packageURL("generic", "glibc", r.libc), "glibc", r.libc, "LGPL-2.1-or-later"),
	}
	for _, module := range p.build.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if licences[module.Path] == "" {
			return billOfMaterials{}, fmt.Errorf("NOTICE has no licence for %s; add it", module.Path)
		}
		c := newComponent(packageURL("golang", module.Path, module.Version), module.Path, module.Version, licences[module.Path])
		c.Properties = []property{{"go:sum", module.Sum}}
		parts = append(parts, c)
	}
	console, err := consoleComponents()
	if err != nil {
		return billOfMaterials{}, err
	}
	parts = append(parts, console...)
	self.Ref = self.PURL
	needs := dependency{Ref: self.Ref}
	for _, c := range parts {
		needs.DependsOn = append(needs.DependsOn, c.Ref)
	}
	slices.Sort(needs.DependsOn)
	return billOfMaterials{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		SerialNumber: "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, p.bytes).String(),
		Metadata:     billMetadata{Timestamp: r.built.Format(time.RFC3339), Component: self},
		Components:   parts, Dependencies: []dependency{needs},
	}, nil
}

func newComponent(purl, name, version, licence string) component {
	return component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl, Licenses: []licenseChoice{{strings.ReplaceAll(licence, " and ", " AND ")}}}
}

// packageURL returns a package URL, such as pkg:golang/github.com/spf13/cobra@v1.10.2.
func packageURL(kind, name, version string) string {
	return "pkg:" + kind + "/" + strings.ReplaceAll(name, "@", "%40") + "@" + url.PathEscape(version)
}

// bundledHeading matches a heading of the console's licences page: "## package -
// version (licence)".
var bundledHeading = regexp.MustCompile(`(?m)^## (\S+) - (\S+) \((.+)\)$`)

func consoleComponents() ([]component, error) {
	page, err := readConsoleLicenses()
	if err != nil {
		return nil, err
	}
	var parts []component
	for _, m := range bundledHeading.FindAllStringSubmatch(string(page), -1) {
		parts = append(parts, newComponent(packageURL("npm", m[1], m[2]), m[1], m[2], m[3]))
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("console/dist/licenses.md.gz names no package")
	}
	return parts, nil
}

// buildSetting returns a build setting that Go records in the binary, or "".
func buildSetting(p *releaseBinary, key string) string {
	for _, s := range p.build.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
