package charttest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/tools/charttest/binary"
)

// Values that can't work are refused, and the message names the key.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set  []string
		want string // a regular expression
	}{
		"misspelt key":              {[]string{"replicaCuont=2"}, `replicaCuont`},
		"misspelt key below":        {[]string{"service.prot=80"}, `service.*prot`},
		"misspelt key of library":   {[]string{"sidecar.imagee.tag=x"}, `imagee`},
		"misspelt configuration":    {[]string{"sidecar.config.hodl=5s"}, `config.*hodl`},
		"misspelt server":           {[]string{`sidecar.config.servers=[{"name":"a","upstraem":"http://a/mcp"}]`}, `servers/0.*upstraem`},
		"configuration of ours":     {[]string{"sidecar.config.listen=:1234"}, `config.*listen`},
		"not a duration":            {[]string{"sidecar.config.hold=25"}, `config/hold`},
		"unknown mode":              {[]string{"mode=daemonset"}, `mode`},
		"no backend":                {[]string{"backend.image.repository=\"\""}, `backend\.image\.repository`},
		"no tag":                    {[]string{"backend.image.tag=\"\""}, `backend\.image\.tag`},
		"standalone for nothing":    {[]string{"mode=standalone"}, `config\.upstream`},
		"port of backend":           {[]string{"backend.port=9090"}, `backend\.port.*sidecar\.ports\.ops`},
		"port twice":                {[]string{"sidecar.ports.admin=8080"}, `ports\.(admin|agents)`},
		"privileged port":           {[]string{"sidecar.ports.agents=80"}, `ports/agents`},
		"register nobody":           {[]string{"sidecar.ports.register=8081"}, `registerTokenFile`},
		"too little grace":          {[]string{"terminationGracePeriodSeconds=30"}, `terminationGracePeriodSeconds.*more than 55`},
		"grace and longer drain":    {[]string{"sidecar.drain.timeoutSeconds=120"}, `terminationGracePeriodSeconds.*more than 150`},
		"claim and rolling update":  {[]string{"persistence.enabled=true"}, `strategy\.type.*Recreate`},
		"claim and two replicas":    {[]string{"persistence.enabled=true", `strategy={"type":"Recreate","rollingUpdate":null}`, "replicaCount=2"}, `replicaCount`},
		"own claim, rolling update": {[]string{"sidecar.state.claimName=x"}, `strategy\.type.*Recreate`},
		"no pod is replaced":        {[]string{"strategy.rollingUpdate.maxSurge=0"}, `strategy\.rollingUpdate`},
		"memory limit":              {[]string{"sidecar.resources.limits.memory=0.5Gi"}, `resources\.limits\.memory`},
		"secret that isn't mounted": {[]string{`sidecar.config.agentServers=[{"url":"http://a","apiKeyFile":"/etc/mcp-sidecar/secrets/agnet/key"}]`}, `config\.agentServers\[0\]\.apiKeyFile.*secrets\.agnet`},
		"secret's name":             {[]string{`sidecar.secrets={"Agent":{"secretName":"x"}}`}, `secrets`},
		"no secret":                 {[]string{`sidecar.secrets={"agent":{}}`}, `secretName`},
		"digest as tag":             {[]string{"sidecar.image.tag=sha256:0123"}, `image\.tag`},
		"no image tag":              {[]string{"sidecar.image.tag=\"\""}, `image\.tag`},
		"unknown alert":             {[]string{"prometheusRule.enabled=true", `prometheusRule.alerts={"McpSidecarBackendDwon":{"for":"1m"}}`}, `prometheusRule\.alerts\.McpSidecarBackendDwon`},
		"alert's severity":          {[]string{`prometheusRule.alerts={"McpSidecarBackendDown":{"severty":"info"}}`}, `severty`},
		"user 0":                    {[]string{"sidecar.runAsUser=0"}, `runAsUser`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := rendering{set: test.set}.template(t.Context())
			if err == nil {
				t.Fatalf("it was rendered:\n%s", out)
			}
			_, message, _ := strings.Cut(err.Error(), "\n") // not the command line
			if !regexp.MustCompile(`(?s)` + test.want).MatchString(message) {
				t.Errorf("want a message that matches %q, got:\n%s", test.want, message)
			}
		})
	}
}

// The sidecar takes the configuration of every value set.
func TestSidecarAcceptsConfiguration(t *testing.T) {
	t.Parallel()
	sidecar, err := binary.Build(t.Context(), repository, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, all := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := find[*corev1.ConfigMap](t, all, "-config").Data["config.yaml"]
			root := t.TempDir()
			for _, file := range regexp.MustCompile(`/etc/mcp-sidecar/secrets/\S+`).FindAllString(text, -1) {
				if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, file), []byte("x\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text = strings.ReplaceAll(text, "/etc/mcp-sidecar/", root+"/etc/mcp-sidecar/")
			file := filepath.Join(root, "config.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			key := filepath.Join(root, "session.key") // the container has it, whatever the values are
			if err := os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := proc.Start(t, sidecar, "check", "--config", file, "--session-key-file", key)
			if code := p.Wait(); code != 0 {
				t.Errorf("exit code %d\n%s\n%s", code, p.Output(), text)
			}
		})
	}
}

// chartOwned are the settings that the chart makes itself, from other values or for good.
func chartOwned() []string {
	return []string{
		"listen", "opsListen", "adminListen", "adminTokenFile", "registerListen", "state", "sessionKeyFile",
		"drainDelay", "drainTimeout",
	}
}

// The schema knows the configuration: all keys that the sidecar has, and no other.
func TestSchemaKnowsConfiguration(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(repository, "charts/mcp-sidecar-lib/values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	properties := func(raw json.RawMessage, except ...string) []string {
		var o object
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		keys := slices.Clone(except)
		for k := range o.Properties {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		return keys
	}
	nested := func(definition, property string) json.RawMessage {
		var o object
		if err := json.Unmarshal(schema.Definitions[definition], &o); err != nil {
			t.Fatal(err)
		}
		return o.Properties[property]
	}
	for name, pair := range map[string][2][]string{
		"config":                  {properties(schema.Definitions["config"], chartOwned()...), keys(t, "Config")},
		"config.servers":          {properties(schema.Definitions["server"]), keys(t, "Server")},
		"config.servers.probe":    {properties(nested("server", "probe")), keys(t, "Probe")},
		"config.servers.identity": {properties(nested("server", "identity")), keys(t, "Identity")},
		"config.agentServers":     {properties(schema.Definitions["agentServer"]), keys(t, "AgentServer")},
		"config.conversations":    {properties(schema.Definitions["conversation"]), keys(t, "Conversation")},
	} {
		if got, want := pair[0], pair[1]; !slices.Equal(got, want) {
			t.Errorf("%s: charts/mcp-sidecar-lib/values.schema.json has the keys\n%q\nand the sidecar's configuration\n%q", name, got, want)
		}
	}
}

// keys returns the YAML keys of a type of the sidecar's configuration. It reads the source, so that this module doesn't have
// the sidecar's dependencies.
func keys(t *testing.T, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "cmd/mcp-sidecar/config/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			if typ, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range typ.Fields.List {
					all = append(all, key(field)...)
				}
			}
			return false
		})
	}
	if len(all) == 0 {
		t.Fatalf("the configuration has no type %s", name)
	}
	slices.Sort(all)
	return all
}

// key returns the YAML key of a field, if it has one.
func key(field *ast.Field) []string {
	if field.Tag == nil {
		return nil
	}
	tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("yaml"), ",")
	if tag == "" || tag == "-" {
		return nil
	}
	return []string{tag}
}
