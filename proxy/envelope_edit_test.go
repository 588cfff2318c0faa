package proxy

import (
	"encoding/json"
	"testing"
)

func TestSetListChanged(t *testing.T) {
	t.Parallel()

	tests := []struct{ name, in, want string }{
		{"empty tools", `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"n":1.0}`, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"n":1.0}`},
		{"white space", `{"capabilities" : { "tools" : { } } }`, `{"capabilities" : { "tools" : {"listChanged":true } } }`},
		{"other members", `{"capabilities":{"prompts":{},"tools":{"x":{"listChanged":false}}}}`, `{"capabilities":{"prompts":{},"tools":{"listChanged":true,"x":{"listChanged":false}}}}`},
		{"false", `{"capabilities":{"tools":{"listChanged": false ,"y":2}}}`, `{"capabilities":{"tools":{"listChanged": true ,"y":2}}}`},
		{"null", `{"capabilities":{"tools":{"listChanged":null}}}`, `{"capabilities":{"tools":{"listChanged":true}}}`},
		{"discover result", `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":5}`, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":5}`},
		{"true already", `{"capabilities":{"tools":{"listChanged":true}}}`, ""},
		{"no tools", `{"capabilities":{"prompts":{}}}`, ""},
		{"no capabilities", `{}`, ""},
		{"tools null", `{"capabilities":{"tools":null}}`, ""},
		{"tools elsewhere", `{"capabilities":{},"tools":{}}`, ""},
		{"twice", `{"capabilities":{"tools":{},"tools":{}}}`, ""},
		{"listChanged twice", `{"capabilities":{"tools":{"listChanged":false,"listChanged":false}}}`, ""},
		{"not JSON", `{"capabilities":{"tools":{`, ""},
		{"not an object", `[]`, ""},
		{"empty", ``, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			in := []byte(tt.in)
			got, edited := setListChanged(in)

			want := tt.want
			if want == "" {
				want = tt.in
			}

			if string(got) != want || edited != (tt.want != "") {
				t.Errorf("got %s, %v", got, edited)
			}

			if string(in) != tt.in {
				t.Errorf("the input was changed to %s", in)
			}

			whole := `{"jsonrpc":"2.0","id":1,"result":` + tt.in + `}`
			if got, _ := withListChanged([]byte(whole)); json.Valid([]byte(whole)) && string(got) != `{"jsonrpc":"2.0","id":1,"result":`+want+`}` {
				t.Errorf("in a response: got %s", got)
			}
		})
	}
}

func TestWithID(t *testing.T) {
	t.Parallel()

	tests := []struct{ in, id, want string }{
		{`{"jsonrpc":"2.0","id": 1 ,"method":"x","params":{"id":2}}`, `"abc"`, `{"jsonrpc":"2.0","id": "abc" ,"method":"x","params":{"id":2}}`},
		{`{"params":{"id":2},"id":null}`, `3`, `{"params":{"id":2},"id":3}`},
		{`{"method":"x"}`, `3`, ""},
		{`{"id":1,"id":2}`, `3`, ""},
		{`[{"id":1}]`, `3`, ""},
	}
	for _, tt := range tests {
		got, ok := withID([]byte(tt.in), []byte(tt.id))
		if ok != (tt.want != "") || ok && string(got) != tt.want {
			t.Errorf("%s: got %s, %v", tt.in, got, ok)
		}
	}
}

func TestErrorBody(t *testing.T) {
	t.Parallel()

	data := struct {
		Reason string `json:"reason"`
	}{"away"}

	tests := []struct {
		got  []byte
		want string
	}{
		{errorBody([]byte(`"a"`), -31001, "it's \"away\"", data), `{"jsonrpc":"2.0","id":"a","error":{"code":-31001,"message":"it's \"away\"","data":{"reason":"away"}}}`},
		{errorBody(nil, -32700, "no", nil), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`},
		{errorBody([]byte("1"), 1, "no", func() {}), `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`},
	}
	for _, tt := range tests {
		if string(tt.got) != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}

func TestIDKey(t *testing.T) {
	t.Parallel()

	for _, same := range [][2]string{{`"a"`, `"\u0061"`}, {`1`, `1.0`}, {`100`, `1e2`}, {`"é"`, `"\u00e9"`}, {"-0", "0"}, {"-0.0", "0"}, {`9007199254740993`, `9007199254740993`}} {
		if idKey([]byte(same[0])) != idKey([]byte(same[1])) {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}

	for _, other := range [][2]string{{`"1"`, `1`}, {`1`, `2`}, {`null`, `"null"`}, {`9007199254740993`, `9007199254740992`}, {``, `""`}} {
		if idKey([]byte(other[0])) == idKey([]byte(other[1])) {
			t.Errorf("%s and %s are the same", other[0], other[1])
		}
	}
}
