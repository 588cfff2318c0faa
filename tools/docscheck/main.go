// Command docscheck checks the links of every Markdown file below a directory
// that lead to another file of the repository or to a heading. It knows nothing
// of the web: links with a scheme are left alone. And it checks that the Go tests
// that they name exist, written as `TestName` or `TestName/case`.
//
//	docscheck DIR
//
// It prints every broken link and missing test as FILE:LINE and exits 1 when there is one.
package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docscheck DIR")
		os.Exit(2)
	}

	problems, files, err := check(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "docscheck:", err)
		os.Exit(1)
	}

	for _, p := range problems {
		fmt.Println(p)
	}

	fmt.Printf("%d documents, %d broken links and missing tests\n", files, len(problems))

	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check returns what is broken below root and the number of documents read.
func check(root string) (problems []string, files int, err error) {
	tests, err := testsBelow(root)
	if err != nil {
		return nil, 0, err
	}

	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(d.Name()) && path != root:
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}

		files++

		broken, err := checkFile(root, path, tests)
		problems = append(problems, broken...)

		return err
	})

	return problems, files, err
}

// skipped says whether a directory holds nothing of ours.
func skipped(dir string) bool {
	return strings.HasPrefix(dir, ".") || dir == "node_modules" || dir == "testdata"
}

var (
	// link matches [text](target) and [text](target "title").
	link = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	code = regexp.MustCompile("`[^`]*`")
	// testName matches a test in the text, defined one in the code.
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(?:/[^`]*)?`")
	defined  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

func checkFile(root, path string, tests map[string]bool) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	var problems []string

	for n, line := range prose(string(text)) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			if why := follow(root, path, m[1]); why != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", path, n+1, m[1], why))
			}
		}

		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			if !tests[m[1]] {
				problems = append(problems, fmt.Sprintf("%s:%d: there is no test %s", path, n+1, m[1]))
			}
		}
	}

	return problems, nil
}

// testsBelow returns the names of all Go tests below root.
func testsBelow(root string) (map[string]bool, error) {
	tests := map[string]bool{}

	return tests, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(d.Name()) && path != root:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}

		text, err := os.ReadFile(path)
		for _, m := range defined.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}

		return err
	})
}

// follow returns why a link of a document leads nowhere, or "".
func follow(root, from, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "not a link"
	}

	if u.Scheme != "" || u.Host != "" {
		return ""
	}

	to := from

	switch {
	case strings.HasPrefix(u.Path, "/"):
		to = filepath.Join(root, u.Path)
	case u.Path != "":
		to = filepath.Join(filepath.Dir(from), u.Path)
	}

	if _, err := os.Stat(to); err != nil {
		return "no such file"
	}

	if u.Fragment == "" || filepath.Ext(to) != ".md" {
		return ""
	}

	text, err := os.ReadFile(to)
	if err != nil {
		return err.Error()
	}

	if !anchors(string(text))[u.Fragment] {
		return "no such heading"
	}

	return ""
}

var (
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	markup  = regexp.MustCompile("[`*]|\\]\\([^)]*\\)|\\[")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	named   = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// anchors returns the fragments that a document offers: its headings, spelled as
// GitHub spells them, and its named anchors.
func anchors(text string) map[string]bool {
	found := map[string]bool{}

	for _, line := range prose(text) {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			found[m[1]] = true
		}

		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}

		slug := dropped.ReplaceAllString(markup.ReplaceAllString(strings.ToLower(m[1]), ""), "")
		slug = strings.ReplaceAll(slug, " ", "-")

		unique := slug
		for i := 1; found[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", slug, i)
		}

		found[unique] = true
	}

	return found
}

// prose returns the lines of a document, with the lines of fenced code blanked.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""

	for i, line := range lines {
		trimmed := strings.TrimSpace(line)

		switch {
		case fence == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			fence = trimmed[:3]
		case fence != "" && strings.HasPrefix(trimmed, fence):
			fence = ""
		case fence == "":
			continue
		}

		lines[i] = ""
	}

	return lines
}
