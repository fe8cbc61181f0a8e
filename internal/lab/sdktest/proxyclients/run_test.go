package proxyclients

import (
	"encoding/json"
	"encoding/pem"
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
