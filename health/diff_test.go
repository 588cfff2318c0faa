package health

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiffNamesTools(t *testing.T) {
	before := toolset(t, HashOptions{}, `{"name":"a"}`, `{"name":"b"}`, `{"name":"d"}`)
	after := toolset(t, HashOptions{}, `{"name":"b"}`, `{"name":"c"}`, `{"name":"d","description":"x"}`)
	want := []Change{
		{Tool: "a", Kind: ChangeRemoved, Breaking: true},
		{Tool: "c", Kind: ChangeAdded},
		{Tool: "d", Kind: ChangeChanged, Details: []string{`"description" added: "x"`}},
	}
	if diff := cmp.Diff(want, Diff(before, after)); diff != "" {
		t.Error(diff)
	}
	if got := Diff(before, before); got != nil {
		t.Errorf("a toolset differs from itself: %v", got)
	}
	if got := Diff(Toolset{}, before); len(got) != 3 || got[0].Kind != ChangeAdded {
		t.Errorf("from nothing: %v", got)
	}
}

func TestDiffOfATool(t *testing.T) {
	input := func(s string) string { return `"inputSchema":{"type":"object",` + s + `}` }
	output := func(s string) string { return `"outputSchema":{"type":"object",` + s + `}` }
	tests := map[string]struct {
		before, after string
		breaking      bool
		want          []string
	}{
		"description": {`"description":"a"`, `"description":"b"`, false, []string{`"description" changed from "a" to "b"`}},
		"long description": {
			`"description":"` + strings.Repeat("a", 100) + `"`, `"description":"b"`, false,
			[]string{`"description" changed`},
		},
		"annotation":           {`"annotations":{"readOnlyHint":true}`, `"annotations":{"readOnlyHint":false}`, false, []string{`annotation "readOnlyHint" changed from "true" to "false"`}},
		"required added":       {input(`"properties":{}`), input(`"properties":{"n":{}},"required":["n"]`), true, []string{`required parameter "n" added`}},
		"optional added":       {input(`"properties":{}`), input(`"properties":{"n":{}}`), false, []string{`optional parameter "n" added`}},
		"parameter removed":    {input(`"properties":{"n":{}}`), input(`"properties":{}`), true, []string{`optional parameter "n" removed`}},
		"now required":         {input(`"properties":{"n":{}}`), input(`"properties":{"n":{}},"required":["n"]`), true, []string{`parameter "n" is now required`}},
		"no longer required":   {input(`"properties":{"n":{}},"required":["n"]`), input(`"properties":{"n":{}}`), false, []string{`parameter "n" is no longer required`}},
		"required, undeclared": {input(`"required":["n"]`), input(`"required":["m"]`), true, []string{`"n" in input schema is no longer required`, `"m" in input schema is now required`}},
		"type":                 {input(`"properties":{"n":{"type":"string"}}`), input(`"properties":{"n":{"type":"integer"}}`), true, []string{`"type" of parameter "n" changed from "string" to "integer"`}},
		"wider number":         {input(`"properties":{"n":{"type":"integer"}}`), input(`"properties":{"n":{"type":"number"}}`), false, []string{`"type" of parameter "n" changed from "integer" to "number"`}},
		"wider type":           {input(`"properties":{"n":{"type":"string"}}`), input(`"properties":{"n":{"type":["string","null"]}}`), false, []string{`"type" of parameter "n" gained "null"`}},
		"narrower enum":        {input(`"properties":{"u":{"enum":["c","k"]}}`), input(`"properties":{"u":{"enum":["c"]}}`), true, []string{`"enum" of parameter "u" lost "k"`}},
		"wider enum":           {input(`"properties":{"u":{"enum":["c"]}}`), input(`"properties":{"u":{"enum":["c",7]}}`), false, []string{`"enum" of parameter "u" gained 7`}},
		"new enum":             {input(`"properties":{"u":{}}`), input(`"properties":{"u":{"enum":["c","k"]}}`), true, []string{`"enum" of parameter "u" is now "c", "k"`}},
		"order of enum":        {input(`"properties":{"u":{"enum":["c","k"]}}`), input(`"properties":{"u":{"enum":["k","c"]}}`), false, []string{`"enum" of parameter "u" is in another order`}},
		"nested":               {input(`"properties":{"f":{"properties":{"x":{"items":{"type":"string"}}}}}`), input(`"properties":{"f":{"properties":{"x":{"items":{"type":"null"}}}}}`), true, []string{`"type" of parameter "f.x[]" changed from "string" to "null"`}},
		"bound":                {input(`"properties":{"n":{}}`), input(`"properties":{"n":{"maximum":5}}`), true, []string{`"maximum" of parameter "n" added: "5"`}},
		"bound gone":           {input(`"properties":{"n":{"maximum":5}}`), input(`"properties":{"n":{}}`), false, []string{`"maximum" of parameter "n" removed`}},
		"bound changed":        {input(`"properties":{"n":{"maximum":5}}`), input(`"properties":{"n":{"maximum":6}}`), true, []string{`"maximum" of parameter "n" changed from "5" to "6"`}},
		"closed":               {input(`"properties":{}`), input(`"properties":{},"additionalProperties":false`), true, []string{`"additionalProperties" of input schema added: "false"`}},
		"opened":               {input(`"additionalProperties":false`), input(`"additionalProperties":true`), false, []string{`"additionalProperties" of input schema changed from "false" to "true"`}},
		"unjudgeable":          {input(`"oneOf":[{}]`), input(`"oneOf":[true]`), true, []string{`"oneOf" of input schema changed from "[{}]" to "[true]"`}},
		"parameter text":       {input(`"properties":{"n":{"description":"a"}}`), input(`"properties":{"n":{"description":"b"}}`), false, []string{`"description" of parameter "n" changed from "a" to "b"`}},
		"output added":         {`"x":1`, `"x":1,` + output(`"properties":{}`), false, []string{`output schema added`}},
		"output removed":       {output(`"properties":{}`), `"x":1`, true, []string{`output schema removed`, `"x" added: "1"`}},
		"field added":          {output(`"properties":{}`), output(`"properties":{"n":{}},"required":["n"]`), false, []string{`required field "n" added`}},
		"field removed":        {output(`"properties":{"n":{}}`), output(`"properties":{}`), true, []string{`optional field "n" removed`}},
		"field less sure":      {output(`"properties":{"n":{}},"required":["n"]`), output(`"properties":{"n":{}}`), true, []string{`field "n" is no longer required`}},
		"field wider":          {output(`"properties":{"n":{"type":"integer"}}`), output(`"properties":{"n":{"type":"number"}}`), true, []string{`"type" of field "n" changed from "integer" to "number"`}},
		"schema becomes bool":  {`"inputSchema":{}`, `"inputSchema":true`, true, []string{`input schema changed from "{}" to "true"`}},
		"control characters":   {`"description":"a"`, `"description":"\u001b[31m"`, false, []string{`"description" changed from "a" to "\x1b[31m"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Diff(toolset(t, HashOptions{}, `{"name":"t",`+tt.before+`}`), toolset(t, HashOptions{}, `{"name":"t",`+tt.after+`}`))
			want := []Change{{Tool: "t", Kind: ChangeChanged, Breaking: tt.breaking, Details: tt.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
