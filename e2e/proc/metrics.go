//go:build unix

package proc

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metrics returns every sample of a page of metrics by its series: name and
// labels as they are written. The page is fetched on a connection of its own.
func Metrics(tb testing.TB, url string) map[string]float64 {
	tb.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: Patience}
	resp, err := c.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		tb.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if samples[line[:at]], err = strconv.ParseFloat(line[at+1:], 64); err != nil {
			tb.Errorf("%s: %v", line, err)
		}
	}
	return samples
}
