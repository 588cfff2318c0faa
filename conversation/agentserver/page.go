package agentserver

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
)

// maxPage is the largest page of a search, and the default.
const maxPage = 100

// errPageLimit stands for the assertion that a larger limit fails at OpenHands' agent server.
var errPageLimit = errors.New("limit is too large")

// page is the answer to a search.
type page[T any] struct {
	Items      []T     `json:"items"`
	NextPageID *string `json:"next_page_id"`
}

// paginate returns the page that begins with the item of id from, or the first
// page when no item has it, because it was deleted meanwhile.
func paginate[T any](items []T, id func(T) string, from string, limit int) page[T] {
	start := slices.IndexFunc(items, func(item T) bool { return id(item) == from })
	start = max(start, 0)
	end := min(start+limit, len(items))
	p := page[T]{Items: slices.Clone(items[start:end])}
	if p.Items == nil {
		p.Items = []T{}
	}
	if end < len(items) {
		next := id(items[end])
		p.NextPageID = &next
	}
	return p
}

// pageLimit reads the query's limit. When it can't, it has answered.
func pageLimit(w http.ResponseWriter, r *http.Request) (int, bool) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return maxPage, true
	}
	loc := []string{"query", "limit"}
	limit, err := strconv.Atoi(text)
	switch {
	case err != nil:
		answerInvalid(w, invalid{"int_parsing", loc, "Input should be a valid integer, unable to parse string as an integer"})
	case limit < 1:
		answerInvalid(w, invalid{"greater_than", loc, "Input should be greater than 0"})
	case limit > maxPage:
		answerFailure(w, errPageLimit)
	default:
		return limit, true
	}
	return 0, false
}

// sortInfos sorts by the given order, and reports whether there is such an order.
func sortInfos(infos []Info, order string) bool {
	var compare func(a, b Info) int
	switch order {
	case "CREATED_AT":
		compare = func(a, b Info) int { return a.CreatedAt.Compare(b.CreatedAt) }
	case "CREATED_AT_DESC", "":
		compare = func(a, b Info) int { return b.CreatedAt.Compare(a.CreatedAt) }
	case "UPDATED_AT":
		compare = func(a, b Info) int { return a.UpdatedAt.Compare(b.UpdatedAt) }
	case "UPDATED_AT_DESC":
		compare = func(a, b Info) int { return b.UpdatedAt.Compare(a.UpdatedAt) }
	default:
		return false
	}
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(compare(a, b), cmp.Compare(a.ID, b.ID))
	})
	return true
}
