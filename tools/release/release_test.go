package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestArchive(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 3, 4, 5, 6, 7, 890, time.FixedZone("", 3600))
	entries := []entry{{"b", 0o755, []byte("program")}, {"a", 0o644, []byte("text")}}

	first, err := archive("dir", at, entries)
	if err != nil {
		t.Fatal(err)
	}

	second, err := archive("dir", at.UTC(), []entry{entries[1], entries[0]})
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(first, second) {
		t.Error("order and time zone make a difference")
	}

	z, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}

	var names []string

	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		names = append(names, h.Name)

		if h.Uid != 0 || h.Uname != "" || !h.ModTime.Equal(at.Truncate(time.Second)) {
			t.Errorf("%s says who made it or when: %+v", h.Name, h)
		}
	}

	if got := strings.Join(names, " "); got != "dir/a dir/b" {
		t.Errorf("got %s", got)
	}
}

func TestBillOfMaterials(t *testing.T) {
	t.Parallel()

	b := &binary{
		platform: platform{"linux", "arm64"}, content: []byte("program"), time: time.Unix(1e9, 0),
		info: &buildinfo.BuildInfo{
			GoVersion: "go1.26.1",
			Main:      debug.Module{Path: "example.com/program", Version: "v1.2.3+dirty"},
			Deps:      []*debug.Module{{Path: "example.com/lib", Version: "v0.1.0", Sum: "h1:abc="}},
			Settings:  []debug.BuildSetting{{Key: "GOOS", Value: "linux"}},
		},
	}

	content, err := billOfMaterials(b)
	if err != nil {
		t.Fatal(err)
	}

	again, err := billOfMaterials(b)
	if err != nil || !bytes.Equal(content, again) {
		t.Error("the same program has two bills of materials", err)
	}

	var got bom
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}

	// The pattern is the schema's.
	serial := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	if !serial.MatchString(got.Serial) || got.Metadata.Timestamp != "2001-09-09T01:46:40Z" {
		t.Errorf("got %q at %q", got.Serial, got.Metadata.Timestamp)
	}

	if main := got.Metadata.Component; main.PURL != "pkg:golang/example.com/program@v1.2.3%2Bdirty" || main.Hashes[0].Content != sha(b.content) {
		t.Errorf("got %+v", main)
	}

	var purls []string
	for _, c := range got.Components {
		purls = append(purls, c.PURL)
	}

	if got := strings.Join(purls, " "); got != "pkg:golang/std@1.26.1 pkg:golang/example.com/lib@v0.1.0" {
		t.Errorf("got %s", got)
	}
}

func TestLicences(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	if err := licensesOf(&bytes.Buffer{}, "lib", dir); err == nil {
		t.Error("a module without a licence is fine")
	}

	for name, content := range map[string]string{"LICENSE-MIT": "may", "notice.txt": "by", "licenses.go": "package"} {
		if err := os.WriteFile(dir+"/"+name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var out bytes.Buffer
	if err := licensesOf(&out, "lib v1", dir); err != nil {
		t.Fatal(err)
	}

	if s := out.String(); !strings.Contains(s, "lib v1: LICENSE-MIT\n") || !strings.Contains(s, "\nby\n") || strings.Contains(s, "package") {
		t.Errorf("got %s", s)
	}
}

func TestPackedFilesExist(t *testing.T) {
	t.Parallel()

	for _, name := range packed() {
		if _, err := os.Stat("../../" + name); err != nil {
			t.Error(err)
		}
	}
}

func TestParsePlatform(t *testing.T) {
	t.Parallel()

	if p, err := parsePlatform(" linux/arm64"); err != nil || p != (platform{"linux", "arm64"}) {
		t.Errorf("got %v, %v", p, err)
	}

	for _, s := range []string{"", "linux", "/amd64", "linux/"} {
		if _, err := parsePlatform(s); err == nil {
			t.Errorf("%q is a platform", s)
		}
	}
}
