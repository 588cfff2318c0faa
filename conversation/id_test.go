package conversation_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	const uuid = "0f8fad5b-d9cb-469f-a165-70867728950e"
	for _, test := range []struct{ in, want string }{ // "" is refused
		{uuid, uuid},
		{strings.ToUpper(uuid), uuid},
		{strings.ReplaceAll(uuid, "-", ""), uuid},
		{strings.ToUpper(strings.ReplaceAll(uuid, "-", "")), uuid},
		{"Chat_1.a-B", "Chat_1.a-B"},
		{"...", "..."},
		{strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{"0f8fad5bd9cb469fa16570867728950", "0f8fad5bd9cb469fa16570867728950"},   // 31 digits
		{"0f8fad5bd9cb469fa16570867728950g", "0f8fad5bd9cb469fa16570867728950g"}, // no UUID
		{"0f8fad5bd-9cb-469f-a165-70867728950e", "0f8fad5bd-9cb-469f-a165-70867728950e"},
		{"", ""},
		{".", ""},
		{"..", ""},
		{strings.Repeat("x", 129), ""},
		{"../x", ""},
		{"a/b", ""},
		{"a%2fb", ""},
		{"a?b", ""},
		{"a#b", ""},
		{"a b", ""},
		{"a\r\nb", ""},
		{"a\x00", ""},
		{"größe", ""},
		{"{" + uuid + "}", ""},
		{"urn:uuid:" + uuid, ""},
	} {
		got, err := conversation.ParseID(test.in)
		if string(got) != test.want || (err != nil) != (test.want == "") {
			t.Errorf("ParseID(%q) = %q, %v; want %q", test.in, got, err, test.want)
		}
		if err != nil {
			wantErr(t, "ParseID", err, conversation.ErrInvalid)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"a", "..", "0f8fad5b-d9cb-469f-a165-70867728950e", "0F8FAD5BD9CB469FA16570867728950E", "a/b", "ſ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := conversation.ParseID(s)
		if err != nil {
			return
		}
		if again, err := conversation.ParseID(string(id)); err != nil || again != id {
			t.Errorf("ParseID isn't stable: %q, then %q, %v", id, again, err)
		}
		if url.PathEscape(string(id)) != string(id) || id == "." || id == ".." {
			t.Errorf("%q isn't a plain path segment", id)
		}
	})
}

func TestValidateName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"default": true, "a.b_c-D1": true, strings.Repeat("n", 63): true,
		"": false, ".": false, "..": false, "a b": false, "a/b": false, "ä": false, strings.Repeat("n", 64): false,
	} {
		if err := conversation.ValidateName(name); (err == nil) != ok {
			t.Errorf("ValidateName(%q): %v", name, err)
		}
	}
}
