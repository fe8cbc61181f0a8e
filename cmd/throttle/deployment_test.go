package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
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

const pageToken = "0123456789abcdef0123456789abcdef"

// startDashboard starts the command, and returns the page's address and what ends the command.
func startDashboard(t *testing.T, args ...string) (url string, end func() error) {
	cmd, _ := startCommand(t, commandVariable, append([]string{"dashboard", "--listen", "127.0.0.1:0"}, args...)...)
	return startPage(t, cmd)
}

// startPage starts a command that serves the page, as startDashboard does.
func startPage(t *testing.T, cmd *exec.Cmd) (url string, end func() error) {
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(talk)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if _, rest, found := strings.Cut(line, "the page is at "); found {
			url, _, _ = strings.Cut(rest, ";")
			return url, func() error {
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				return cmd.Wait()
			}
		}
	}
}

// ask asks the page, and returns the status and what the answer begins with.
func ask(t *testing.T, method, url, body, token string) (int, string) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	begin := make([]byte, 200)
	n, err := io.ReadFull(resp.Body, begin)
	if err != io.ErrUnexpectedEOF && err != io.EOF {
		require.NoError(t, err)
	}
	return resp.StatusCode, string(begin[:n])
}

// TestDashboard: the page is served until the command is told to end, and shows and acts with the token in a file alone.
func TestDashboard(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(pageToken+"\n"), 0o600))
	url, end := startDashboard(t, "--token-file", file, at)
	status, text := ask(t, http.MethodGet, url, "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "<!doctype html>")
	require.NotContains(t, url, pageToken)
	status, _ = ask(t, http.MethodGet, url+"events", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, text = ask(t, http.MethodGet, url+"events", "", pageToken)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "event: state")
	const order = `{"budget":"shop/000000000000","for":1000,"by":"ann","reason":"x"}`
	status, _ = ask(t, http.MethodPost, url+"pause", order, "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, text = ask(t, http.MethodPost, url+"pause", order, pageToken)
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, text, "no node has reported")
	require.NoError(t, end())
}

// TestDashboardKeepsItsViewers: connections without the token, as many as like to, do not cut off who looks.
func TestDashboardKeepsItsViewers(t *testing.T) {
	t.Parallel()
	cmd, _ := startCommand(t, commandVariable, "dashboard", "--listen", "127.0.0.1:0", "--redis", redistest.Single(t).URL())
	cmd.Env = append(cmd.Env, tokenVariable+"="+pageToken)
	url, end := startPage(t, cmd)
	r, err := http.NewRequest(http.MethodGet, url+"events", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+pageToken)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()

	for range mostPageConns + 10 {
		conn, err := net.Dial("tcp", r.URL.Host)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, 1<<20)
	changes := 0
	for changes < 3 && events.Scan() {
		if events.Text() == "event: change" {
			changes++
		}
	}
	require.Equal(t, 3, changes, "the stream goes on: %v", events.Err())
	require.NoError(t, end())
}

// TestDashboardMakesAToken: without a token of somebody's the command makes one and prints a link with it, and the token shows and acts.
func TestDashboardMakesAToken(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	link, end := startDashboard(t, at)
	url, own, found := strings.Cut(link, "#token=")
	require.True(t, found, link)
	require.GreaterOrEqual(t, len(own), 26)
	status, _ := ask(t, http.MethodGet, url+"events", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = ask(t, http.MethodGet, url+"events", "", own)
	require.Equal(t, http.StatusOK, status)
	status, _ = ask(t, http.MethodPost, url+"pause", `{"budget":"shop/000000000000","for":1000,"by":"ann","reason":"x"}`, own)
	require.Equal(t, http.StatusNotFound, status)
	require.NoError(t, end())
}

// TestDashboardWithoutRedis: the page is served while Redis is away, and says so. --local lets this machine look.
func TestDashboardWithoutRedis(t *testing.T) {
	t.Parallel()
	link, end := startDashboard(t, "--redis", "redis://127.0.0.1:1", "--timeout", "500ms", "--local", "--watch")
	url, _, _ := strings.Cut(link, "#")
	status, text := ask(t, http.MethodGet, url+"events", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `"failed":"`)
	require.NoError(t, end())
}

// TestDashboardWarnsOfALooseToken: who can read the token can act, so a file that others may read is told of.
func TestDashboardWarnsOfALooseToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(pageToken+"\n"), 0o600))
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o620: true} {
		require.NoError(t, os.Chmod(file, mode))
		var out, talk strings.Builder
		// A budget too many ends the command before it serves.
		require.Equal(t, exitUsage, run(t.Context(), []string{"dashboard", "--redis", "redis://127.0.0.1:1", "--token-file", file, "--budgets", "1001"}, &out, &talk))
		told = told && runtime.GOOS != "windows" // whose files have no rights of others
		require.Equal(t, told, strings.Contains(talk.String(), "WARNING: other users of this machine may read or write "+file), "%o", mode)
	}
}

// TestDashboardIsRefused: what would let others in, or nobody, is refused with what would help.
func TestDashboardIsRefused(t *testing.T) {
	t.Setenv(addressVariable, "redis://127.0.0.1:1")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"other machines would reach this address": {"--listen", "0.0.0.0:0"},
		"is empty":                    {"--token-file", empty},
		"no such file":                {"--token-file", empty + "x"},
		"use 1 to 1000, or 0 for 100": {"--budgets", "1001"},
	} {
		var out, talk strings.Builder
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"dashboard"}, args...), &out, &talk), want)
		require.Contains(t, talk.String(), want)
	}
	t.Setenv(tokenVariable, "secret")
	var out, talk strings.Builder
	require.Equal(t, exitUsage, run(t.Context(), []string{"dashboard"}, &out, &talk))
	require.Contains(t, talk.String(), "too easy to guess")
	require.NotContains(t, talk.String(), "secret")
}
