package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name, text string
		want       []string // what each problem must contain, in order
	}{
		{"file", "see [other](other.md)", nil},
		{"file in a directory, from the root", "see [d](/docs/deep.md)", nil},
		{"directory", "see [docs](docs)", nil},
		{"heading", "see [h](other.md#what-it-does-and-why)", nil},
		{"second heading of a name", "see [h](other.md#twice-1)", nil},
		{"named anchor", "see [h](other.md#by-hand)", nil},
		{"own heading", "# Here\n[up](#here)", nil},
		{"the web", "[w](https://example.com/nothing.md) [m](mailto:a@example.com)", nil},
		{"code", "```\n[x](gone.md)\n```", nil},
		{"inline code", "`[x](gone.md)`", nil},
		{"text in code", "[`x`](gone.md)", []string{"gone.md"}},
		{"no file", "\n[x](gone.md)", []string{"doc.md:2: gone.md: no such file"}},
		{"no heading", "[x](other.md#gone)", []string{"no such heading"}},
		{"heading only in code", "[x](other.md#not-a-heading)", []string{"no such heading"}},
		{"tests", "`TestThere`, `TestThere/case` and `FuzzThere`; TestGone without ticks", nil},
		{"missing test", "`x`: `TestGone`, `Testing`", []string{"there is no test TestGone"}},
		{"two on a line", "[x](gone.md) and ![y](gone.png)", []string{"gone.md", "gone.png"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			root := t.TempDir()
			write(t, root, "doc.md", tt.text)
			write(t, root, "x_test.go", "package x\n\nfunc TestThere(t *testing.T) {}\n\nfunc FuzzThere(f *testing.F) {}\n")
			write(t, root, "docs/deep.md", "up: [other](../other.md#twice)")
			write(t, root, "node_modules/x/README.md", "[x](gone.md)")
			write(t, root, "other.md", "# What *it* does, and `why`\n## Twice\n## Twice\n<a id=\"by-hand\"></a>\n```\n# Not a heading\n```\n")

			got, files, err := check(root)
			if err != nil {
				t.Fatal(err)
			}

			if files != 3 {
				t.Errorf("read %d documents, want 3", files)
			}

			if !slices.EqualFunc(got, tt.want, strings.Contains) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()

	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
