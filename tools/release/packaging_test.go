package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../"

func read(t *testing.T, name string) string {
	t.Helper()

	content, err := os.ReadFile(root + name)
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}

// instructions returns a Dockerfile's instructions by stage.
func instructions(t *testing.T) [][]string {
	t.Helper()

	var stages [][]string

	text := strings.ReplaceAll(read(t, "Dockerfile"), "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")

		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "FROM "):
			stages = append(stages, []string{line})
		default:
			stages[len(stages)-1] = append(stages[len(stages)-1], line)
		}
	}

	return stages
}

// No image can be built in a test: the images that it begins with are elsewhere.
func TestImage(t *testing.T) {
	t.Parallel()

	stages := instructions(t)
	if len(stages) != 2 {
		t.Fatalf("%d stages", len(stages))
	}

	build, image := strings.Join(stages[0], "\n"), strings.Join(stages[1], "\n")

	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	for _, want := range []string{"golang:" + version + " AS build", "go -C tools run ./release -C .. -o /release "} {
		if !strings.Contains(build, want) {
			t.Errorf("the build has no %q:\n%s", want, build)
		}
	}

	for _, want := range []string{
		`^FROM gcr\.io/distroless/static-debian\d+:nonroot$`,
		`^COPY --from=build /image/mcp-sidecar /usr/local/bin/$`,
		`^COPY --from=build /image/LICENSE /image/THIRD-PARTY-LICENSES\.txt /licenses/$`,
		`^USER 65532:65532$`,
		`^EXPOSE 8080 9090 9091$`,
		`^ENTRYPOINT \["/usr/local/bin/mcp-sidecar"\]$`,
	} {
		if !regexp.MustCompile("(?m)" + want).MatchString(image) {
			t.Errorf("the image has no %s:\n%s", want, image)
		}
	}
}

func TestImageIgnoresWhatGitIgnores(t *testing.T) {
	t.Parallel()

	patterns := func(name string) []string {
		var all []string

		for line := range strings.Lines(read(t, name)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}

			all = append(all, strings.Trim(strings.TrimPrefix(line, "**/"), "/"))
		}

		slices.Sort(all)

		return all
	}
	if git, docker := patterns(".gitignore"), patterns(".dockerignore"); !slices.Equal(git, docker) {
		t.Errorf("git ignores %v, the image %v", git, docker)
	}
}

func TestService(t *testing.T) {
	t.Parallel()

	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is missing: install systemd")
		}

		t.Skip("systemd-analyze is missing: the unit isn't verified")
	}

	// The program has to exist where the unit looks for it.
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	unit := strings.ReplaceAll(read(t, "docs/systemd/mcp-sidecar.service"), "/usr/local/bin/mcp-sidecar", program)
	file := filepath.Join(t.TempDir(), "mcp-sidecar.service")

	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}

	// What it doesn't know it only warns of.
	out, err := exec.CommandContext(t.Context(), tool, "verify", "--man=no", file).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}

	// In tenths of its scale, of which the end is 100.
	out, err = exec.CommandContext(t.Context(), tool, "security", "--offline=yes", "--threshold=15", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
