package charttest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// object is a Kubernetes object of any kind.
type object interface {
	runtime.Object
	metav1.Object
}

// objects are what a chart renders to.
type objects []object

// decode reads manifests as strictly as the API server can: an unknown kind, an unknown field and a field that is
// there twice are errors.
func decode(manifests string) (objects, error) {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), monitoringv1.AddToScheme(s)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	var all objects
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(stripComments(document))) == 0 {
			continue
		}
		o, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, document)
		}
		named, ok := o.(object)
		if !ok {
			return nil, fmt.Errorf("%T has no name", o)
		}
		all = append(all, named)
	}
}

func stripComments(document []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(document) {
		if !bytes.HasPrefix(line, []byte("#")) && !bytes.HasPrefix(line, []byte("---")) {
			kept = append(kept, line...)
		}
	}
	return kept
}

// render renders a chart and reads what comes out.
func render(t *testing.T, r rendering) objects {
	t.Helper()
	out, err := r.template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// find returns the only object of a kind whose name ends in suffix.
func find[T object](t *testing.T, all objects, suffix string) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if typed, ok := o.(T); ok && strings.HasSuffix(o.GetName(), suffix) {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		var none T
		t.Fatalf("%d objects of type %T are named …%s", len(found), none, suffix)
	}
	return found[0]
}

// has tells whether there is an object of a kind.
func has[T object](all objects) bool {
	for _, o := range all {
		if _, ok := o.(T); ok {
			return true
		}
	}
	return false
}

// pod returns the template of the Deployment's pods.
func pod(t *testing.T, all objects) corev1.PodTemplateSpec {
	t.Helper()
	return find[*appsv1.Deployment](t, all, "").Spec.Template
}

// sidecarOf returns the sidecar's container of a pod, native or not.
func sidecarOf(t *testing.T, spec corev1.PodSpec) corev1.Container {
	t.Helper()
	for _, c := range append(append([]corev1.Container(nil), spec.InitContainers...), spec.Containers...) {
		if c.Name == "mcp-sidecar" {
			return c
		}
	}
	t.Fatal("the pod has no sidecar")
	return corev1.Container{}
}
