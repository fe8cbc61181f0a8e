package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

const deployments = "../../deploy/"

// requireProxy requires that words are a command line of the proxy which it would serve, and returns its
// flags.
func requireProxy(t *testing.T, words []string) *proxyServer {
	t.Helper()
	require.Equal(t, "proxy", words[0])
	token := t.TempDir() + "/token"
	require.NoError(t, os.WriteFile(token, []byte(proxyToken), 0o600))
	for i, word := range words {
		if i > 0 && words[i-1] == "--token-file" {
			require.Contains(t, word, "/token")
			words[i] = token
		}
	}
	c, s := newProxyWith()
	require.NoError(t, c.ParseFlags(words[1:]))
	require.NoError(t, c.ValidateArgs(c.Flags().Args()))
	s.at.address = "redis://redis:6379/0"
	require.NoError(t, s.check(strings.Join(c.Flags().Args(), "")))
	require.LessOrEqual(t, s.held, 256, "MemoryMax counts on it")
	return s
}

// TestUnit: the service of systemd starts the proxy as the command has it.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(deployments + "throttle-proxy.service")
	require.NoError(t, err)
	unit := strings.ReplaceAll(string(text), "\\\n", "")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/throttle (.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, start)
	s := requireProxy(t, strings.Fields(start[1]))
	require.Contains(t, unit, "\nTimeoutStopSec=25\n")
	require.EqualValues(t, 20, s.stopTime.Seconds())
	require.False(t, isExposed(s.listen))
	require.False(t, isExposed(s.adminListen))
}

// TestContainer: the image starts the proxy as the command has it, not as root, knows zones, and names its release.
func TestContainer(t *testing.T) {
	text, err := os.ReadFile(deployments + "Containerfile")
	require.NoError(t, err)
	command := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindSubmatch(text)
	require.NotNil(t, command)
	var words []string
	require.NoError(t, json.Unmarshal(command[1], &words))
	requireProxy(t, words)
	require.Regexp(t, `(?s)FROM scratch\n.*USER 65532:65532\n`, string(text))
	require.Regexp(t, `(?m)^RUN GOOS=\$TARGETOS GOARCH=\$TARGETARCH .* -tags timetzdata .* main\.release=\$RELEASE"`, string(text))
}

// A pod is what the test reads of a manifest.
type pod struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds float64
				InitContainers, Containers    []container
			}
		}
	}
}

type container struct {
	Name, RestartPolicy string
	Args                []string
	Env                 []struct{ Name, Value string }
	Ports               []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, LivenessProbe, ReadinessProbe *struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds float64 } } `yaml:"preStop"`
	}
}

// UnmarshalYAML reads keys as Kubernetes writes them.
func (p *pod) UnmarshalYAML(n *yaml.Node) error {
	var any map[string]any
	if err := n.Decode(&any); err != nil {
		return err
	}
	text, err := json.Marshal(any) // whose decoder does not mind case
	if err != nil {
		return err
	}
	type plain pod
	return json.Unmarshal(text, (*plain)(p))
}

// manifests reads the pods of a file.
func manifests(t *testing.T, name string) (all []pod) {
	text, err := os.ReadFile(deployments + name)
	require.NoError(t, err)
	for from := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var p pod
		err := from.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// require requires that a container starts the proxy, and that its probes ask for what is there.
func (c *container) require(t *testing.T, grace float64, probes map[string]string) *proxyServer {
	s := requireProxy(t, c.Args)
	ports := make(map[string]int)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	require.Equal(t, 7079, ports["admin"])
	require.Equal(t, ":7079", s.adminListen)
	got := make(map[string]string)
	if c.StartupProbe != nil {
		got["startup"] = c.StartupProbe.HTTPGet.Port + c.StartupProbe.HTTPGet.Path
	}
	if c.LivenessProbe != nil {
		got["liveness"] = c.LivenessProbe.HTTPGet.Port + c.LivenessProbe.HTTPGet.Path
	}
	if c.ReadinessProbe != nil {
		got["readiness"] = c.ReadinessProbe.HTTPGet.Port + c.ReadinessProbe.HTTPGet.Path
	}
	require.Equal(t, probes, got)
	require.Greater(t, grace, c.Lifecycle.PreStop.Sleep.Seconds+s.stopTime.Seconds())
	require.Equal(t, addressVariable, c.Env[0].Name)
	return s
}

// TestSidecar: the example's policies are good, and its program reaches them through the proxy that the component adds.
func TestSidecar(t *testing.T) {
	patch := manifests(t, "sidecar/sidecar.yaml")
	require.Len(t, patch, 1)
	spec := patch[0].Spec.Template.Spec
	sidecar := spec.InitContainers[0]
	require.Equal(t, "Always", sidecar.RestartPolicy)
	s := sidecar.require(t, spec.TerminationGracePeriodSeconds, map[string]string{"startup": "admin/readyz", "liveness": "admin/livez"})

	// kustomize refuses a component whose folder holds the overlay as a cycle.
	text, err := os.ReadFile(deployments + "example/kustomization.yaml")
	require.NoError(t, err)
	var overlay struct{ Components []string }
	require.NoError(t, yaml.Unmarshal(text, &overlay))
	require.Equal(t, []string{"../sidecar"}, overlay.Components)

	program := manifests(t, "example/program.yaml")
	require.Len(t, program, 1)
	base := program[0].Spec.Template.Spec.Containers[0].Env[0]
	require.Equal(t, "OPENAI_BASE_URL", base.Name)
	host, ok := strings.CutPrefix(base.Value, "http://"+s.listen+"/")
	require.True(t, ok)
	host, _, _ = strings.Cut(host, "/")

	for _, file := range []string{"policies.yaml", "example/policies.yaml"} {
		text, err := os.ReadFile(deployments + file)
		require.NoError(t, err)
		policies, err := policyfile.Parse("policies.yaml", text)
		require.NoError(t, err)
		require.True(t, proxy.NewTable(policies.Policies).Has(host), file)
	}
}

// TestShared: the proxy of many programs has a token, and follows what is pushed.
func TestShared(t *testing.T) {
	all := manifests(t, "shared/throttle.yaml")
	require.Equal(t, "Service", all[1].Kind)
	spec := all[0].Spec.Template.Spec
	s := spec.Containers[0].require(t, spec.TerminationGracePeriodSeconds, map[string]string{"readiness": "admin/readyz", "liveness": "admin/livez"})
	require.True(t, isExposed(s.listen))
	require.Equal(t, proxyToken, s.token)
	require.NotContains(t, spec.Containers[0].Args, "--no-token")
}
