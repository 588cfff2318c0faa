package health

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func hashOf(t *testing.T, o HashOptions, tools ...string) string {
	t.Helper()
	return toolset(t, o, tools...).Hash
}

func toolset(t *testing.T, o HashOptions, tools ...string) Toolset {
	t.Helper()
	raw := make([]json.RawMessage, len(tools))
	for i, s := range tools {
		raw[i] = json.RawMessage(s)
	}
	ts, err := HashTools(raw, o)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

const weather = `{"name":"weather","description":"Tells \u00e9 weather","inputSchema":{"type":"object","properties":{"city":{"type":["string","null"]},"days":{"type":"integer","maximum":10}},"required":["city","days"],"dependentRequired":{"days":["city","unit"]}},"annotations":{"readOnlyHint":true}}`

func TestHashIgnoresHowAToolIsWritten(t *testing.T) {
	tests := map[string]string{
		"member order":          `{"inputSchema":{"required":["city","days"],"type":"object","dependentRequired":{"days":["city","unit"]},"properties":{"days":{"maximum":10,"type":"integer"},"city":{"type":["string","null"]}}},"annotations":{"readOnlyHint":true},"description":"Tells é weather","name":"weather"}`,
		"whitespace":            strings.ReplaceAll(weather, ",", " ,\n\t"),
		"escapes":               strings.Replace(weather, `\u00e9`, `é`, 1),
		"escaped name":          strings.Replace(weather, `"weather"`, `"\u0077eather"`, 1),
		"number spelling":       strings.Replace(weather, `10`, `1.0e1`, 1),
		"order of required":     strings.Replace(weather, `["city","days"]`, `["days","city"]`, 1),
		"order of types":        strings.Replace(weather, `["string","null"]`, `["null","string"]`, 1),
		"order of dependent":    strings.Replace(weather, `["city","unit"]`, `["unit","city"]`, 1),
		"_meta":                 strings.Replace(weather, `{"name"`, `{"_meta":{"build":17},"name"`, 1),
		"icons":                 strings.Replace(weather, `{"name"`, `{"icons":[{"src":"x"}],"name"`, 1),
		"everything at a time ": ` { "icons":[], "_meta":null ,` + weather[1:],
	}
	want := hashOf(t, HashOptions{}, weather)
	for name, tool := range tests {
		t.Run(name, func(t *testing.T) {
			if tool == weather {
				t.Fatal("the test changes nothing")
			}
			got := toolset(t, HashOptions{}, tool)
			if got.Hash != want || got.Tools[0].Name != "weather" {
				t.Errorf("got %s of %q, want %s", got.Hash, got.Tools[0].Name, want)
			}
		})
	}
}

func TestHashSeesEveryEdit(t *testing.T) {
	edit := func(old, replacement string) string { return strings.Replace(weather, old, replacement, 1) }
	tests := map[string][2]string{
		"name":                     {weather, edit(`"weather"`, `"Weather"`)},
		"description":              {weather, edit(`Tells`, `tells`)},
		"title":                    {weather, edit(`{"name"`, `{"title":"W","name"`)},
		"required":                 {weather, edit(`["city","days"]`, `["city"]`)},
		"type":                     {weather, edit(`"integer"`, `"number"`)},
		"annotations":              {weather, edit(`true`, `false`)},
		"output schema":            {weather, edit(`{"name"`, `{"outputSchema":{"type":"object"},"name"`)},
		"execution":                {weather, edit(`{"name"`, `{"execution":{"taskSupport":"optional"},"name"`)},
		"unknown member":           {weather, edit(`{"name"`, `{"x-cost":1,"name"`)},
		"unknown schema keyword":   {weather, edit(`"maximum"`, `"x-mcp-header":"City","maximum"`)},
		"schema root keyword":      {weather, edit(`"inputSchema":{`, `"inputSchema":{"$schema":"s",`)},
		"nested _meta":             {weather, edit(`"inputSchema":{`, `"inputSchema":{"_meta":1,`)},
		"number":                   {weather, edit(`10`, `11`)},
		"unicode normalisation":    {`{"name":"` + "\u00e9" + `"}`, `{"name":"` + "e\u0301" + `"}`},
		"integer beyond a double":  {`{"name":"a","x":9007199254740993}`, `{"name":"a","x":9007199254740992}`},
		"number beyond a double":   {`{"name":"a","x":1e400}`, `{"name":"a","x":1e401}`},
		"lone surrogate":           {`{"name":"a","x":"\ud800"}`, `{"name":"a","x":"\ud801"}`},
		"bad UTF-8":                {"{\"name\":\"a\",\"x\":\"\xff\"}", "{\"name\":\"a\",\"x\":\"\xfe\"}"},
		"order of repeated member": {`{"name":"a","x":1,"x":2}`, `{"name":"a","x":2,"x":1}`},
		"order of enum":            {`{"name":"a","inputSchema":{"enum":["x","y"]}}`, `{"name":"a","inputSchema":{"enum":["y","x"]}}`},
		"order of oneOf":           {`{"name":"a","inputSchema":{"oneOf":[{},true]}}`, `{"name":"a","inputSchema":{"oneOf":[true,{}]}}`},
		"order in a default":       {`{"name":"a","inputSchema":{"default":{"required":["x","y"]}}}`, `{"name":"a","inputSchema":{"default":{"required":["y","x"]}}}`},
		"order in an example":      {`{"name":"a","inputSchema":{"examples":[{"type":["x","y"]}]}}`, `{"name":"a","inputSchema":{"examples":[{"type":["y","x"]}]}}`},
		"order outside a schema":   {`{"name":"a","annotations":{"required":["x","y"]}}`, `{"name":"a","annotations":{"required":["y","x"]}}`},
		"null is not absent":       {`{"name":"a"}`, `{"name":"a","title":null}`},
	}
	for name, pair := range tests {
		t.Run(name, func(t *testing.T) {
			if x, y := hashOf(t, HashOptions{}, pair[0]), hashOf(t, HashOptions{}, pair[1]); x == y {
				t.Errorf("both hash to %s", x)
			}
		})
	}
}

func TestSetsAreSortedInEverySchema(t *testing.T) {
	for _, where := range []string{
		`{"properties":{"required":%s}}`, `{"items":%s}`, `{"items":[%s]}`, `{"prefixItems":[true,%s]}`, `{"anyOf":[%s]}`, `{"allOf":[%s]}`,
		`{"not":%s}`, `{"if":%s}`, `{"then":%s}`, `{"else":%s}`, `{"$defs":{"default":%s}}`, `{"definitions":{"d":%s}}`, `{"additionalProperties":%s}`,
		`{"patternProperties":{"^x":%s}}`, `{"dependentSchemas":{"d":%s}}`, `{"dependencies":{"d":%s}}`, `{"contains":%s}`, `{"propertyNames":%s}`,
	} {
		for _, root := range []string{"inputSchema", "outputSchema"} {
			tool := func(required string) string {
				return `{"name":"a","` + root + `":` + strings.Replace(where, "%s", `{"required":`+required+`}`, 1) + `}`
			}
			if hashOf(t, HashOptions{}, tool(`["x","y"]`)) != hashOf(t, HashOptions{}, tool(`["y","x"]`)) {
				t.Errorf("not sorted in %s %s", root, where)
			}
		}
	}
	old := `{"name":"a","inputSchema":{"dependencies":{"d":["x","y"]}}}`
	if hashOf(t, HashOptions{}, old) != hashOf(t, HashOptions{}, strings.Replace(old, `"x","y"`, `"y","x"`, 1)) {
		t.Error("the lists of the old dependencies keyword aren't sorted")
	}
}

func TestHashOfAListDoesNotDependOnOrder(t *testing.T) {
	x := toolset(t, HashOptions{}, `{"name":"b"}`, `{"name":"a"}`, `{"name":"B"}`)
	y := toolset(t, HashOptions{}, `{"name":"a"}`, `{"name":"B"}`, `{"name":"b"}`)
	if diff := cmp.Diff(x, y); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"B", "a", "b"}, x.names()); diff != "" {
		t.Error(diff)
	}
	// The form is published: anybody can compute the hash of a list.
	// printf '[{"description":"x","name":"a"}]' | sha256sum
	want := "sha256:8020f4c1fce3cb1e2a0c56d4a661984668cd74703869c74a1fedc08d045f28c0"
	if got := hashOf(t, HashOptions{}, `{"name": "a", "description": "x", "icons": []}`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if hashOf(t, HashOptions{}) == hashOf(t, HashOptions{}, `{"name":"a"}`) {
		t.Error("an empty list hashes like another one")
	}
}

func TestHashIncludesMetaWhenAsked(t *testing.T) {
	x, y := `{"name":"a","_meta":{"v":1}}`, `{"name":"a","_meta":{"v":2}}`
	if hashOf(t, HashOptions{}, x) != hashOf(t, HashOptions{}, y) {
		t.Error("_meta counts by default")
	}
	if hashOf(t, HashOptions{IncludeMeta: true}, x) == hashOf(t, HashOptions{IncludeMeta: true}, y) {
		t.Error("_meta doesn't count though it should")
	}
}

func TestHashToolsRefuses(t *testing.T) {
	tests := map[string]struct {
		tools []json.RawMessage
		want  Reason
	}{
		"two of a name":       {[]json.RawMessage{[]byte(`{"name":"a"}`), []byte(`{"name":"b"}`), []byte(`{"name":"\u0061","x":1}`)}, ReasonDuplicateName},
		"too many":            {[]json.RawMessage{[]byte(`{"name":"a"}`), []byte(`{"name":"b"}`), []byte(`{"name":"c"}`), []byte(`{"name":"d"}`)}, ReasonTooMany},
		"no object":           {[]json.RawMessage{[]byte(`[]`)}, ReasonInvalid},
		"no name":             {[]json.RawMessage{[]byte(`{"Name":"a"}`)}, ReasonInvalid},
		"a name of no string": {[]json.RawMessage{[]byte(`{"name":1}`)}, ReasonInvalid},
		"no JSON":             {[]json.RawMessage{[]byte(`{"name":"a"`)}, ReasonInvalid},
		"more than one value": {[]json.RawMessage{[]byte(`{"name":"a"}{}`)}, ReasonInvalid},
		"nested too deeply":   {[]json.RawMessage{[]byte(strings.Repeat("[", 200_000))}, ReasonInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := HashTools(tt.tools, HashOptions{MaxTools: 3})
			if got := reasonOf(err); got != tt.want {
				t.Errorf("reason %q, want %q (%v)", got, tt.want, err)
			}
		})
	}
}

// The canonical form is that of RFC 8785 wherever that is defined.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		weather, `null`, `-0`, `1E30`, `4.50`, `2e-3`, `0.000000000000000000000000001`, `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`,
		`{"\u20ac":1,"\r":2,"1":3,"\u0080":4,"\ud83d\ude02":5,"\u00f6":6,"\ufb33":7,"</script>":8}`, `[56,{"d":true,"10":null,"1":[]}]`,
		`{"a":1,"a":2}`, `"\ud800"`, `[`, `{"a":}`, `9007199254740993`, "\"\u2028\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := parseNode(raw)
		want := jsontext.Value(bytes.Clone(raw))
		errWant := want.Canonicalize(jsontext.CanonicalizeRawInts(false))
		if err != nil {
			if errWant == nil {
				t.Fatalf("refused %q: %v", raw, err)
			}
			return
		}
		got := n.canonical()
		if errWant == nil && !bytes.Equal(got, want) && !bytes.ContainsAny(raw, "eE") {
			t.Errorf("%q became %q, want %q", raw, got, want)
		}
		again, err := parseNode(got)
		if err != nil {
			t.Fatalf("%q became %q, which can't be read: %v", raw, got, err)
		}
		if second := again.canonical(); !bytes.Equal(got, second) {
			t.Errorf("%q became %q and then %q", raw, got, second)
		}
	})
}

// Whatever a tool looks like, shuffling its members changes nothing, and adding one does.
func FuzzHashTools(f *testing.F) {
	f.Add([]byte(weather), uint64(1))
	f.Add([]byte(`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"enum":[1,2]}}}}`), uint64(2))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		ts, err := HashTools([]json.RawMessage{raw}, HashOptions{})
		if err != nil || !jsontext.Value(raw).IsValid() {
			return
		}
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			return
		}
		n, err := parseNode(raw)
		if err != nil {
			t.Fatal(err)
		}
		shuffle(rand.New(rand.NewPCG(seed, seed)), &n)
		shuffled, err := HashTools([]json.RawMessage{asSent(&n)}, HashOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if shuffled.Hash != ts.Hash {
			t.Errorf("%q hashes otherwise when shuffled to %q", raw, asSent(&n))
		}
		if _, ok := v["zz"]; ok {
			return
		}
		more, err := HashTools([]json.RawMessage{append([]byte(`{"zz":1,`), bytes.TrimLeft(raw, " \t\r\n")[1:]...)}, HashOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if more.Hash == ts.Hash {
			t.Errorf("%q hashes the same with another member", raw)
		}
		if changes := Diff(ts, more); len(changes) != 1 || changes[0].Kind != ChangeChanged || len(changes[0].Details) == 0 {
			t.Errorf("the difference is %+v", changes)
		}
	})
}

func shuffle(r *rand.Rand, n *node) {
	r.Shuffle(len(n.members), func(i, j int) { n.members[i], n.members[j] = n.members[j], n.members[i] })
	for i := range n.members {
		shuffle(r, &n.members[i].value)
	}
	for i := range n.elems {
		shuffle(r, &n.elems[i])
	}
}

// asSent writes n without sorting.
func asSent(n *node) []byte {
	var b bytes.Buffer
	switch n.kind {
	case '{':
		b.WriteByte('{')
		for i, m := range n.members {
			if i > 0 {
				b.WriteString(" ,")
			}
			b.Write(m.name.text)
			b.WriteString(": ")
			b.Write(asSent(&m.value))
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i := range n.elems {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(asSent(&n.elems[i]))
		}
		b.WriteByte(']')
	default:
		b.Write(n.text)
	}
	return b.Bytes()
}

func BenchmarkHashTools(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		tools := make([]json.RawMessage, n)
		for i := range tools {
			tools[i] = json.RawMessage(strings.Replace(weather, `"weather"`, `"weather`+strconv.Itoa(i)+`"`, 1))
		}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := HashTools(tools, HashOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
