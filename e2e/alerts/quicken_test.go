//go:build unix && alerts

package alerts

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	rulesFile = "../../charts/mcp-sidecar/files/rules.yaml"

	// haste is by how much the durations of the rules are shortened.
	haste = 20
	// shortest range that holds several samples at a scrape interval of a second, in seconds.
	shortest = 5
)

var (
	ranges  = regexp.MustCompile(`\[(\d+)([mh])\]`)
	periods = regexp.MustCompile(`(?m)^( +(?:for|keep_firing_for): )(\d+)([mh])$`)
)

// quickRules returns the shipped alerts with all durations shortened, and nothing else changed.
func quickRules(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	rules := string(b)
	scaled := func(n, unit string) int {
		seconds, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		if unit == "h" {
			seconds *= 60
		}
		return seconds * 60 / haste
	}
	changed := 0
	rules = ranges.ReplaceAllStringFunc(rules, func(s string) string {
		changed++
		m := ranges.FindStringSubmatch(s)
		return fmt.Sprintf("[%ds]", max(scaled(m[1], m[2]), shortest))
	})
	rules = periods.ReplaceAllStringFunc(rules, func(s string) string {
		changed++
		m := periods.FindStringSubmatch(s)
		return fmt.Sprintf("%s%ds", m[1], scaled(m[2], m[3]))
	})
	// The age of the oldest outdated conversation is a number in its expression.
	const age = ") > 300\n"
	if changed < 20 || strings.Count(rules, age) != 1 {
		t.Fatalf("%s isn't written as this test expects: %d durations, %d ages", rulesFile, changed, strings.Count(rules, age))
	}
	return strings.Replace(rules, age, fmt.Sprintf(") > %d\n", 300/haste), 1)
}
