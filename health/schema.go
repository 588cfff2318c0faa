package health

import (
	"cmp"
	"slices"
)

// keyword says what the value of a JSON Schema keyword holds.
type keyword int

const (
	data          keyword = iota // anything else: order has a meaning, or may have
	set                          // an array of strings whose order has no meaning
	setOfEach                    // an object of such arrays
	subschema                    // a schema
	subschemas                   // an array of schemas, or one schema
	schemaOfEach                 // an object of schemas
	schemaOrSetOf                // an object of schemas or of such arrays
)

// keywordOf covers the drafts that MCP servers use: 2020-12, and what earlier ones had besides.
func keywordOf(name string) keyword {
	switch name {
	case "required", "type":
		return set
	case "dependentRequired":
		return setOfEach
	case "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not", "propertyNames",
		"then", "unevaluatedItems", "unevaluatedProperties":
		return subschema
	case "allOf", "anyOf", "oneOf", "prefixItems", "items":
		return subschemas
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		return schemaOfEach
	case "dependencies":
		return schemaOrSetOf
	default:
		return data
	}
}

// sortSets puts the set-valued keywords of a JSON Schema, and of the schemas within it, in order: some frameworks write
// them in another order each time a process starts. What isn't a schema, such as the value of "default", is left alone, and
// so is "enum": its order is shown to the model.
func sortSets(schema *node) {
	for i := range schema.members {
		m := &schema.members[i]
		switch keywordOf(m.name.str) {
		case set:
			sortStrings(&m.value)
		case setOfEach:
			for j := range m.value.members {
				sortStrings(&m.value.members[j].value)
			}
		case subschema:
			sortSets(&m.value)
		case subschemas:
			sortSets(&m.value)
			for j := range m.value.elems {
				sortSets(&m.value.elems[j])
			}
		case schemaOfEach, schemaOrSetOf:
			for j := range m.value.members {
				sortSets(&m.value.members[j].value)
				if keywordOf(m.name.str) == schemaOrSetOf {
					sortStrings(&m.value.members[j].value)
				}
			}
		case data:
		}
	}
}

func sortStrings(n *node) {
	if n.kind != '[' || slices.ContainsFunc(n.elems, func(e node) bool { return e.kind != '"' }) {
		return
	}
	slices.SortFunc(n.elems, func(x, y node) int { return cmp.Compare(x.str, y.str) })
}
