package main

import (
	"encoding/json"
	"strings"
	"time"
)

// The part of CycloneDX 1.6 (ECMA-424) that a bill of materials of a Go program
// needs.
type (
	bom struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Serial     string      `json:"serialNumber"`
		Version    int         `json:"version"`
		Metadata   bomMetadata `json:"metadata"`
		Components []component `json:"components"`
	}
	bomMetadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// billOfMaterials lists what is linked into a program, by what it says of itself.
func billOfMaterials(b *binary) ([]byte, error) {
	sum := sha(b.content)
	main := module("application", b.info.Main.Path, b.info.Main.Version)
	main.Hashes = []hash{{"SHA-256", sum}}

	for _, key := range []string{"GOOS", "GOARCH", "vcs.revision"} {
		main.Properties = append(main.Properties, property{"build:" + key, setting(b.info, key)})
	}

	all := []component{module("library", "std", strings.TrimPrefix(b.info.GoVersion, "go"))}

	for _, d := range b.info.Deps {
		c := module("library", d.Path, d.Version)
		c.Properties = []property{{"go.sum", d.Sum}}
		all = append(all, c)
	}

	content, err := json.MarshalIndent(bom{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial:     "urn:uuid:" + strings.Join([]string{sum[:8], sum[8:12], "8" + sum[13:16], "8" + sum[17:20], sum[20:32]}, "-"),
		Metadata:   bomMetadata{b.time.UTC().Format(time.RFC3339), main},
		Components: all,
	}, "", "  ")

	return append(content, '\n'), err
}

func module(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")

	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}
