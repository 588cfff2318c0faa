//go:build chaos && unix

package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// split returns the messages of a batch, or the only one.
func split(raw []byte) ([]message, error) {
	parts := []json.RawMessage{raw}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		parts = nil
		if err := strict(raw, &parts); err != nil {
			return nil, fmt.Errorf("%s: %.300q", err.Error(), raw)
		}
		if len(parts) == 0 {
			return nil, errors.New("an empty batch came")
		}
	}
	all := make([]message, len(parts))
	for i, part := range parts {
		var err error
		if all[i], err = readMessage(part); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addAll takes an event of the answer to a batch.
func (o *reply) addAll(e event) error {
	if e.name != "" && e.name != "message" {
		return fmt.Errorf("an event %q came", e.name)
	}
	all, err := split(e.data)
	if err != nil {
		return err
	}
	for _, m := range all {
		switch {
		case m.Method == "":
			o.all = append(o.all, m)
		case m.ID != nil || !strings.HasPrefix(m.Method, "notifications/"):
			return fmt.Errorf("the backend asks for %s", m.Method)
		}
	}
	return nil
}

// item is one request of a batch.
type item struct {
	e    *entry
	id   string
	want string // text of the result, "" if any
}

// batch sends a few requests and a notification at once. Each request must have its own answer.
func (a *agent) batch() {
	tools := []string{"transfer", "transfer", "balance", "set_limit", "echo", "add", "slow"}
	var items []item
	messages := make([]string, 0, 4)
	for range 1 + a.rng.IntN(3) {
		if a.rng.IntN(6) == 0 {
			e, id := a.request("ping", "")
			items = append(items, item{e: e, id: id})
			messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id))
			continue
		}
		tool := tools[a.rng.IntN(len(tools))]
		e, id := a.request("tools/call", tool)
		args, want := a.arguments(e)
		items = append(items, item{e: e, id: id, want: want})
		messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args))
	}
	messages = slices.Insert(messages, a.rng.IntN(len(messages)+1), `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	a.caller.batch = true
	got, err := a.caller.post("[" + strings.Join(messages, ",") + "]")
	a.caller.batch = false
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("the answer is %d %.300q", got.status, got.body)
	}
	for _, it := range items {
		at := slices.IndexFunc(got.all, func(m message) bool { return string(m.ID) == it.id })
		if at < 0 {
			missing := err
			if missing == nil {
				missing = errors.New("there is no response in the answer")
			}
			a.ended(it.e, nil, got, missing)
			continue
		}
		m := got.all[at]
		got.all = slices.Delete(got.all, at, at+1)
		if m.Error != nil {
			if wrong := m.Error.check(); wrong != "" {
				a.w.ledger.defect(it.e, "%s", wrong)
			}
		}
		if a.ended(it.e, &m, got, nil) && it.e.method == "tools/call" {
			a.checkResult(it.e, &m, it.want)
		}
	}
	if len(got.all) > 0 {
		a.w.ledger.defect(items[0].e, "responses to nothing, or second ones, came: %+v", got.all)
	}
}
