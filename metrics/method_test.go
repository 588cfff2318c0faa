package metrics

import (
	"slices"
	"testing"
)

func TestMethod(t *testing.T) {
	t.Parallel()

	tests := []struct{ in, want string }{
		{"tools/call", "tools/call"},
		{"initialize", "initialize"},
		{"server/discover", "server/discover"},
		{"subscriptions/listen", "subscriptions/listen"},
		{"tasks/update", "tasks/update"},
		{"notifications/tools/list_changed", "notifications/tools/list_changed"},
		{"", "other"},
		{"other", "other"},
		{"Tools/Call", "other"},
		{"tools/call ", "other"},
		{"tools/call\n", "other"},
		{"x-vendor/anything", "other"},
		{"tools/call/123e4567-e89b-12d3-a456", "other"},
	}
	for _, tt := range tests {
		if got := Method(tt.in); got != tt.want {
			t.Errorf("Method(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestMethodsAreTheRangeOfMethod(t *testing.T) {
	t.Parallel()

	all := Methods()
	if !slices.IsSorted(all) {
		t.Errorf("not sorted: %v", all)
	}

	for _, m := range all {
		if got := Method(m); got != m {
			t.Errorf("Method(%q) = %q", m, got)
		}
	}

	if !slices.Contains(all, OtherMethod) {
		t.Error("a value of Method is missing: other")
	}
}

func TestClientMethods(t *testing.T) {
	t.Parallel()

	got := ClientMethods()
	for _, m := range []string{"initialize", "tools/call", "notifications/initialized", "tasks/update", OtherMethod} {
		if !slices.Contains(got, m) {
			t.Errorf("missing: %s", m)
		}
	}

	for _, m := range []string{"sampling/createMessage", "notifications/tools/list_changed"} {
		if slices.Contains(got, m) {
			t.Errorf("no client sends %s", m)
		}
	}

	for _, m := range got {
		if !slices.Contains(Methods(), m) {
			t.Errorf("%s is not in Methods", m)
		}
	}
}

func FuzzMethod(f *testing.F) {
	f.Add("tools/call")
	f.Add("\xff\x00")

	all := Methods()

	f.Fuzz(func(t *testing.T, in string) {
		if got := Method(in); !slices.Contains(all, got) {
			t.Errorf("Method(%q) = %q, which is not in Methods", in, got)
		}
	})
}
