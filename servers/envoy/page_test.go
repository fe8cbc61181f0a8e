package envoy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	ratelimitfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// validated is what the generated validation of Envoy's messages offers.
type validated interface{ ValidateAll() error }

// read reads a value of YAML into a message of Envoy, and checks the message and all messages in it. A field that Envoy
// does not know fails.
func read(t *testing.T, value any, into proto.Message) {
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, protojson.Unmarshal(text, into), string(text))
	check(t, into.ProtoReflect())
}

func check(t *testing.T, m protoreflect.Message) {
	if v, ok := m.Interface().(validated); ok {
		require.NoError(t, v.ValidateAll())
	}
	if wrapped, ok := m.Interface().(*anypb.Any); ok {
		inner, err := anypb.UnmarshalNew(wrapped, proto.UnmarshalOptions{Resolver: protoregistry.GlobalTypes})
		require.NoError(t, err)
		check(t, inner.ProtoReflect())
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { check(t, v.Message()); return true })
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				check(t, v.List().Get(i).Message())
			}
		case !f.IsMap() && f.Message() != nil:
			check(t, v.Message())
		}
		return true
	})
}

// blocks returns the documents in blocks of YAML of the page, by kind or by their first member.
func blocks(t *testing.T) map[string]map[string]any {
	page, err := os.ReadFile("../../docs/use/envoy.md")
	require.NoError(t, err)
	all := make(map[string]map[string]any)
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, text := range strings.Split(block[1], "\n---\n") {
			document := make(map[string]any)
			require.NoError(t, yaml.Unmarshal([]byte(text), &document))
			name, ok := document["kind"].(string)
			if !ok {
				name, _, _ = strings.Cut(strings.TrimSpace(strings.SplitN(text, "envoy.filters.http.", 2)[1]), "\n")
			}
			all[name] = document
		}
	}
	return all
}

// at returns the value at a path of names and of indexes.
func at(t *testing.T, value any, path ...any) any {
	for _, step := range path {
		switch name := step.(type) {
		case string:
			value = value.(map[string]any)[name]
		case int:
			value = value.([]any)[name]
		}
		require.NotNil(t, value, "%v", path)
	}
	return value
}

// TestPage: Envoy's own messages take the configuration on the page, and the values fit this server.
func TestPage(t *testing.T) {
	all := blocks(t)
	require.Len(t, all, 5)

	fits := func(value any) {
		filter, config := new(managerv3.HttpFilter), new(filterv3.ExternalProcessor)
		read(t, value, filter)
		require.NoError(t, filter.GetTypedConfig().UnmarshalTo(config))
		require.Greater(t, config.GetMessageTimeout().AsDuration().Seconds(), 5.0, "--max-wait")
		require.True(t, config.GetAllowModeOverride())
		require.False(t, config.GetFailureModeAllow())
		require.Equal(t, filterv3.ProcessingMode_SEND, config.GetProcessingMode().GetResponseTrailerMode())
	}
	fits(at(t, all["ext_proc"], "http_filters", 0))
	fits(at(t, all["EnvoyFilter"], "spec", "configPatches", 0, "patch", "value"))
	read(t, at(t, all["ext_proc"], "clusters", 0), new(clusterv3.Cluster))

	limit, config := new(managerv3.HttpFilter), new(ratelimitfilterv3.RateLimit)
	read(t, at(t, all["ratelimit"], "http_filters", 0), limit)
	require.NoError(t, limit.GetTypedConfig().UnmarshalTo(config))
	require.True(t, config.GetFailureModeDeny())
	read(t, at(t, all["ratelimit"], "rate_limits", 0), new(routev3.RateLimit))

	// The Go types of these resources come with a Kubernetes client, so names are compared with the types' own: see
	// https://gateway.envoyproxy.io/docs/api/extension_types/.
	gateway := at(t, all["EnvoyExtensionPolicy"], "spec", "extProc", 0).(map[string]any)
	for name := range gateway {
		require.Contains(t, []string{"backendRefs", "stage", "messageTimeout", "failOpen", "processingMode"}, name)
	}
	require.Equal(t, "Backend", gateway["stage"])
	require.Equal(t, map[string]any{"allowModeOverride": true, "request": map[string]any{}, "response": map[string]any{}}, gateway["processingMode"])
	require.NotEmpty(t, at(t, all["BackendTrafficPolicy"], "spec", "timeout", "http", "requestTimeout"))
}
