package charttest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"
)

func TestGeneratedSessionKey(t *testing.T) {
	t.Parallel()
	secret := find[*corev1.Secret](t, render(t, rendering{}), "-session-key")
	if secret.Immutable == nil || !*secret.Immutable {
		t.Error("a rendering away from the cluster could change the key")
	}
	if secret.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("it doesn't outlive the release")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(secret.Data["session.key"])))
	if err != nil || len(key) != 32 {
		t.Errorf("the key has %d bytes, %v", len(key), err)
	}
	if again := find[*corev1.Secret](t, render(t, rendering{}), "-session-key"); string(again.Data["session.key"]) == string(secret.Data["session.key"]) {
		t.Error("two installs have the same key")
	}
}

func TestOwnSessionKey(t *testing.T) {
	t.Parallel()
	all := render(t, rendering{set: []string{"sidecar.sessionKey.existingSecret=mine", "sidecar.sessionKey.key=key"}})
	if has[*corev1.Secret](all) {
		t.Error("a Secret was rendered all the same")
	}
	for _, v := range pod(t, all).Spec.Volumes {
		if v.Name == "mcp-sidecar-session-key" && (v.Secret.SecretName != "mine" || v.Secret.Items[0].Key != "key" || v.Secret.Items[0].Path != "session.key") {
			t.Errorf("volume: %+v", v.Secret)
		}
	}
}

// An upgrade that can't see the key must not make another one.
func TestUpgradeKeepsSessionKey(t *testing.T) {
	t.Parallel()
	upgrade := []string{"--is-upgrade"}
	_, err := rendering{args: upgrade}.template(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sessionKey.existingSecret") {
		t.Errorf("an upgrade away from the cluster: %v", err)
	}
	render(t, rendering{args: upgrade, set: []string{"sidecar.sessionKey.allowNew=true"}})
	render(t, rendering{args: upgrade, set: []string{"sidecar.sessionKey.existingSecret=mine"}})

	stored := base64.StdEncoding.EncodeToString(make([]byte, 32))
	seen := cluster(t, &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tools-mcp-sidecar-session-key"},
		Data:       map[string][]byte{"session.key": []byte(stored)},
	})
	for range 2 {
		secret := find[*corev1.Secret](t, render(t, rendering{args: append(upgrade, seen...)}), "-session-key")
		if got := string(secret.Data["session.key"]); got != stored {
			t.Errorf("the key changed to %q", got)
		}
	}
	_, err = rendering{args: append(upgrade, seen...), set: []string{"sidecar.sessionKey.key=other"}}.template(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sessionKey.key") {
		t.Errorf("a Secret without the key: %v", err)
	}
	_, err = rendering{args: append(upgrade, cluster(t, nil)...)}.template(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sessionKey.existingSecret") {
		t.Errorf("an upgrade in a cluster without the key: %v", err)
	}
}

// cluster serves as much of the API of a cluster with one Secret, or none, as helm needs to look it up, and
// returns the arguments that make helm do so.
func cluster(t *testing.T, secret *corev1.Secret) []string {
	t.Helper()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /version", answer(version.Info{Major: "1", Minor: "33", GitVersion: "v1.33.0"}))
	mux.Handle("GET /api", answer(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}))
	mux.Handle("GET /apis", answer(metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "apps/v1", Version: "v1"}}}},
	}))
	for path, kinds := range map[string][]string{"v1": {"Secret", "ConfigMap", "Service"}, "apps/v1": {"Deployment"}} {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: path}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: strings.ToLower(kind) + "s", SingularName: strings.ToLower(kind), Namespaced: true, Kind: kind, Verbs: metav1.Verbs{"get"},
			})
		}
		root := "/apis/"
		if path == "v1" {
			root = "/api/"
		}
		mux.Handle("GET "+root+path, answer(list))
	}
	if secret != nil {
		mux.Handle("GET /api/v1/namespaces/"+secret.Namespace+"/secrets/"+secret.Name, answer(secret))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	kubeconfig, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{map[string]any{"name": "test", "cluster": map[string]any{"server": server.URL}}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test"}}},
		"users":    []any{map[string]any{"name": "test", "user": map[string]any{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--dry-run=server", "--disable-openapi-validation", "--kubeconfig", file}
}
