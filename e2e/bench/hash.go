package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/health"
)

// hashes measures what the hash of a list of tools costs.
func hashes(_ context.Context, b *bench) error {
	t := newTable("the hash of a list of tools", "tools", "KB", "ms", "µs/tool")

	for _, n := range []int{10, 100, 1000, 10_000} {
		tools, size := toolsOf(n)
		times := make([]time.Duration, 0, b.rounds)

		for range b.rounds {
			runs := 0
			began := time.Now()

			for ; runs == 0 || time.Since(began) < b.time/10; runs++ {
				if _, err := health.HashTools(tools, health.HashOptions{}); err != nil {
					return err
				}
			}

			times = append(times, time.Since(began)/time.Duration(runs))
		}

		micros := median(times, func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 })
		t.row(strconv.Itoa(n), float64(size)/1000, micros/1000, micros/float64(n))
	}

	return t.print(b.out)
}

// toolsOf makes tools with schemas as frameworks make them.
func toolsOf(n int) (tools []json.RawMessage, size int) {
	for i := range n {
		tool := fmt.Appendf(nil, `{"name":"tool-%d","title":"Tool %d","description":"Looks up what is known of a customer, by number or by name, and when it was last changed.",`+
			`"inputSchema":{"type":"object","properties":{"number":{"type":"integer","minimum":1,"description":"Number of the customer"},`+
			`"name":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null},"fields":{"type":"array","items":{"type":"string","enum":["address","orders","notes"]}}},`+
			`"required":["number","fields"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}`, i, i)
		tools = append(tools, tool)
		size += len(tool)
	}

	return tools, size
}
