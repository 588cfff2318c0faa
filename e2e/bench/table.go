package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// table is printed as Markdown.
type table struct {
	title string
	rows  [][]string
}

func newTable(title string, columns ...string) *table {
	return &table{title: title, rows: [][]string{columns}}
}

func (t *table) row(name string, values ...float64) {
	t.rows = append(t.rows, []string{name})
	t.add(values...)
}

// add adds to the last row.
func (t *table) add(values ...float64) {
	last := &t.rows[len(t.rows)-1]
	for _, v := range values {
		*last = append(*last, number(v))
	}
}

// number shows three digits that mean something.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

func (t *table) print(out io.Writer) error {
	widths := make([]int, len(t.rows[0]))
	for _, r := range t.rows {
		for i, cell := range r {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}

	var b strings.Builder

	fmt.Fprintf(&b, "\n%s\n\n", t.title)

	for n, r := range t.rows {
		for i, w := range widths {
			cell := ""
			if i < len(r) {
				cell = r[i]
			}

			pad := strings.Repeat(" ", w-len([]rune(cell)))
			if i == 0 {
				cell += pad
			} else {
				cell = pad + cell
			}

			b.WriteString("| " + cell + " ")
		}

		b.WriteString("|\n")

		if n > 0 {
			continue
		}

		for i, w := range widths {
			line := strings.Repeat("-", w)
			if i > 0 {
				line = line[1:] + ":"
			}

			b.WriteString("| " + line + " ")
		}

		b.WriteString("|\n")
	}

	_, err := io.WriteString(out, b.String())

	return err
}

func median[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, 0, len(all))
	for _, v := range all {
		values = append(values, of(v))
	}

	if len(values) == 0 {
		return 0
	}

	slices.Sort(values)

	n := len(values)

	return (values[(n-1)/2] + values[n/2]) / 2
}

func slowest[T any](all []T, of func(T) float64) (most float64) {
	for _, v := range all {
		most = max(most, of(v))
	}

	return most
}

func sum[T any](all []T, of func(T) float64) (n float64) {
	for _, v := range all {
		n += of(v)
	}

	return n
}
