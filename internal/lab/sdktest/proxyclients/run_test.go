package proxyclients

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lineScene is a machine on which programs are started by throttle run, before an upstream that bans.
type lineScene struct {
	*scene
	program string   // throttle
	flags   []string // of throttle run
	env     []string
}

// newLineScene builds throttle, and makes its policies and the environment of programs, which trust the upstream.
func newLineScene(t *testing.T) *lineScene {
	s := &lineScene{scene: &scene{upstream: newUpstream(t), kits: newKits(t)}}
	dir := t.TempDir()
	s.program = filepath.Join(dir, "throttle")
	build(t, "../../../../cmd/throttle", "go", "build", "-o", s.program, ".")

	authority := filepath.Join(dir, "authority.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, certificate, 0o600))
	file := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(policies, "HOST", s.host())), 0o600))
	s.flags = []string{"run", "--file", file, "--private", "127.0.0.1", "--"}

	runtime, err := os.MkdirTemp("", "run") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(runtime) })
	s.env = append(os.Environ(), "SSL_CERT_FILE="+authority, "XDG_RUNTIME_DIR="+runtime, "OPENAI_API_KEY=a-key", "ANTHROPIC_API_KEY=a-key")
	return s
}

// play plays a story of a client under throttle run, and returns what the client reports. The client has the URL of
// the upstream, as a user has the URL of an API: curl by way of $THROTTLE_URL, and SDKs in their variables.
func (s *lineScene) play(t *testing.T, c *client, p place, args ...string) (all []*report) {
	base := s.host() + "/" + p.path() + "/v1"
	words := append(c.start(s.kits), args...)
	variable := c.variable + "=https://" + base
	switch c.variable {
	case "ANTHROPIC_BASE_URL":
		variable = strings.TrimSuffix(variable, "/v1") // which the SDK adds
	case "BASE_URL":
		words = append([]string{"sh", "-c", `BASE_URL=$THROTTLE_URL/` + base + ` exec "$@"`, "sh"}, words...)
	}

	cmd := exec.CommandContext(t.Context(), s.program, append(slices.Clone(s.flags), words...)...)
	cmd.Env = append(slices.Clone(s.env), variable, "RETRIES=0")
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	require.NoError(t, err, talk.String())
	require.Empty(t, talk.String())
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		r := new(report)
		require.NoError(t, d.Decode(r))
		all = append(all, r)
	}
	return all
}

// TestRun: ten programs under throttle run, two of them SDKs, share a limit, and no window has a request too many. What
// does not start in time is refused in the form of the SDK's API.
func TestRun(t *testing.T) {
	s := newLineScene(t)
	find := func(name string) *client {
		return clients[slices.IndexFunc(clients, func(c *client) bool { return c.name == name })]
	}
	openAI, anthropic, curl := find("openai-node"), find("anthropic-node"), find("curl")

	held := place{"run", "held"}
	var programs sync.WaitGroup
	reports := make(chan *report, 100)
	for _, c := range append(slices.Repeat([]*client{curl}, 8), openAI, anthropic) {
		programs.Go(func() {
			for _, r := range s.play(t, c, held, "calls", "1") {
				reports <- r
			}
		})
	}
	programs.Wait()
	close(reports)
	for r := range reports {
		require.Equal(t, http.StatusOK, r.Status, "%+v", r)
		require.Contains(t, r.Timing, "throttle;dur=")
	}
	require.Equal(t, 10, s.count(held))

	scarce := place{"run", "scarce"}
	for _, r := range s.play(t, curl, scarce, "calls", "1") {
		require.Equal(t, http.StatusOK, r.Status, "%+v", r)
	}
	for _, c := range []*client{openAI, anthropic} {
		for _, r := range s.play(t, c, scarce, "calls", "1") {
			s.requireRefused(t, c, r, "scarce", "MaxWait is 4m")
			require.Contains(t, r.Message, `throttle: policy`)
		}
	}
	require.Equal(t, 1, s.count(scarce))
}

// kits are how the programs of each language are started, without the program's name.
type kits struct {
	python, node, php, java, gohttp []string
}

// newKits finds what scripts/install-clients.sh installs, and compiles what is to be compiled.
func newKits(t *testing.T) *kits {
	t.Helper()
	need(t, "curl 7.84 or later", "curl", "--silent", "--json", "{}", "--write-out", "%header{x}", "--version")

	python := "/usr/bin/python3" // which has Debian's packages, whatever python3 is on PATH
	if exec.Command(python, "-c", "import requests, httpx, aiohttp").Run() != nil {
		python = "python3"
	}
	need(t, "requests, httpx and aiohttp for Python", python, "-c", "import requests, httpx, aiohttp")

	if *pypi {
		if exec.Command("python/.venv/bin/python", "-c", "import openai, anthropic").Run() != nil {
			t.Fatal("no SDKs for Python: run scripts/install-clients.sh --pypi")
		}
	}

	node := "node/node_modules/.bin/node"
	if _, err := os.Stat(node); err != nil {
		node = "node" // on a system for which node/package.json has none
	}
	need(t, "packages of Node", node, "--eval", "require('node:fs').accessSync('node/node_modules/.package-lock.json')")

	need(t, "Guzzle for PHP", "php", "-r", "require 'GuzzleHttp/autoload.php';")

	classes := t.TempDir()
	jars := strings.Join([]string{"/usr/share/java/okhttp.jar", "/usr/share/java/okio.jar", classes}, ":")
	need(t, "Java, or OkHttp for it", "sh", "-c", "javac -version && test -e /usr/share/java/okhttp.jar")
	sources, err := filepath.Glob("java/*.java")
	require.NoError(t, err)
	build(t, ".", "javac", append([]string{"-d", classes, "-classpath", jars}, sources...)...)

	gohttp := filepath.Join(t.TempDir(), "gohttp")
	build(t, ".", "go", "build", "-o", gohttp, "./gohttp")
	return &kits{
		python: []string{python}, node: []string{node}, php: []string{"php"},
		java: []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-classpath", jars}, gohttp: []string{gohttp},
	}
}

// need fails unless a command succeeds.
func need(t *testing.T, what, program string, args ...string) {
	t.Helper()
	if exec.Command(program, args...).Run() != nil {
		t.Fatalf("no %s: run scripts/install-clients.sh", what)
	}
}

// build runs a command in a directory, and returns what it prints.
func build(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
	return string(out)
}

// A report is a line that a program prints: of a call, of an event in a stream, or of what the
// client does by default.
type report struct {
	Status     int
	Answer     json.RawMessage
	RetryAfter string
	Via        string
	Timing     string
	Error      string // what the client calls the failure
	Message    string

	Event string

	Timeout float64 // in seconds; 0: none
	Retries int
}

// problem returns the answer of the proxy itself that a call has met.
func (r *report) problem(t *testing.T) (policy, detail string) {
	t.Helper()
	// The SDKs of OpenAI have the error alone, in OpenAI's form.
	var p struct{ Policy, Detail, Message string }
	require.NoError(t, json.Unmarshal(r.Answer, &p), "%+v", r)
	require.Equal(t, "1.1 throttle", r.Via)
	return p.Policy, cmp.Or(p.Detail, p.Message)
}

// A program is a process of a client.
type program struct {
	t       *testing.T
	cmd     *exec.Cmd
	reports *json.Decoder
	talk    bytes.Buffer
}

// start starts a client whose base URL leads to a place. args begin with variables, "NAME=value".
func (s *scene) start(t *testing.T, c *client, address string, p place, args ...string) *program {
	t.Helper()
	base := s.baseURL(address, p)
	if c.variable == "ANTHROPIC_BASE_URL" {
		base = strings.TrimSuffix(base, "/v1") // which the SDK adds
	}
	env := append(os.Environ(), c.variable+"="+base, "OPENAI_API_KEY=a-key", "ANTHROPIC_API_KEY=a-key", "PYTHONUNBUFFERED=1")
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	words := append(c.start(s.kits), args...)
	r := &program{t: t, cmd: exec.CommandContext(t.Context(), words[0], words[1:]...)}
	r.cmd.Env, r.cmd.Stderr = env, &r.talk
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	r.reports = json.NewDecoder(out)
	require.NoError(t, r.cmd.Start())
	return r
}

// next returns the next report; nil: the program has ended.
func (r *program) next() *report {
	r.t.Helper()
	var next report
	switch err := r.reports.Decode(&next); err {
	case nil:
		return &next
	case io.EOF:
		require.NoError(r.t, r.cmd.Wait(), r.talk.String())
		return nil
	default:
		_ = r.cmd.Wait()
		require.NoError(r.t, err, r.talk.String())
		return nil
	}
}

// all returns the reports up to the end of the program.
func (r *program) all() (all []*report) {
	r.t.Helper()
	for next := r.next(); next != nil; next = r.next() {
		all = append(all, next)
	}
	return all
}

// run is start for a program that makes one report.
func (s *scene) run(t *testing.T, c *client, address string, p place, args ...string) *report {
	t.Helper()
	all := s.start(t, c, address, p, args...).all()
	require.Len(t, all, 1)
	return all[0]
}
