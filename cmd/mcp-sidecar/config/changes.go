package config

import (
	"reflect"
	"slices"
)

// Changes returns the keys of what differs between two configurations, sorted.
// Entries of servers and agentServers go by their names: servers[files].hold. No
// value is told.
func Changes(old, next *Config) []string {
	var keys []string
	changes(reflect.ValueOf(*old), reflect.ValueOf(*next), "", &keys)
	slices.Sort(keys)
	return keys
}

func changes(old, next reflect.Value, path string, keys *[]string) {
	for key, f := range fieldsOf(old.Type()) {
		o, n, full := old.Field(f.index), next.Field(f.index), join(path, key)
		switch {
		case reflect.DeepEqual(o.Interface(), n.Interface()):
		case o.Kind() == reflect.Struct && !isScalar(o.Type()):
			changes(o, n, full, keys)
		case isNamed(o.Type()):
			changedEntries(o, n, full, keys)
		default:
			*keys = append(*keys, full)
		}
	}
}

// isNamed tells whether a type is a list of entries with names.
func isNamed(t reflect.Type) bool {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Struct {
		return false
	}
	_, ok := t.Elem().FieldByName("Name")
	return ok
}

func changedEntries(old, next reflect.Value, path string, keys *[]string) {
	before, after := entries(old), entries(next)
	begin := len(*keys)
	for name, n := range after {
		full := path + "[" + name + "]"
		if o, ok := before[name]; ok {
			changes(o, n, full, keys)
		} else {
			*keys = append(*keys, full)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			*keys = append(*keys, path+"["+name+"]")
		}
	}
	if len(*keys) == begin { // their order alone
		*keys = append(*keys, path)
	}
}

func entries(list reflect.Value) map[string]reflect.Value {
	byName := make(map[string]reflect.Value, list.Len())
	for i := range list.Len() {
		byName[list.Index(i).FieldByName("Name").String()] = list.Index(i)
	}
	return byName
}
