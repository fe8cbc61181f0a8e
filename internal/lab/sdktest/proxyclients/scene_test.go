package proxyclients

import (
	"bufio"
	"context"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// policies is the file that the proxies follow. Each client has budgets of its own.
const policies = `version: 1
policies:
  # Windows are counted where requests arrive. Jitter is for a machine that is busy with many programs.
  - {name: held, match: "HOST/{client}/held/", key: "{client}", limit: 2/s, jitter: 3500ms}
  - {name: led, match: "HOST/{client}/led/", key: "{client}", limit: 1 in flight}
  - {name: streamed, match: "HOST/{client}/streamed/", key: "{client}", limit: 100/s}
  - {name: stopped, match: "HOST/{client}/stopped/", key: "{client}", limit: 100/s}
  - {name: coded, match: "HOST/{client}/coded/", key: "{client}", limit: 100/s, penalty: {codes: {fields: errcode, lasts: {"90018": 1h}}}}
  - {name: banned, match: "HOST/{client}/banned/", key: "{client}", limit: 100/s}
  - {name: scarce, match: "HOST/{client}/scarce/", key: "{client}", limit: 1/h}
  - {name: forwarded, match: "HOST/{client}/forwarded/", key: "{client}", limit: 1/h}
  - {name: tunnelled, match: "HOST/{client}/tunnelled/", key: "{client}", limit: 100/s}
  - {name: signed, match: "HOST/{client}/signed/", limit: 100/s}
  - {name: defaults, match: "HOST/{client}/defaults/", limit: 100/s}
  - {name: short, match: "HOST/{client}/short/", key: "{client}", limit: 1/4s}
`

// A scene is two proxies that share a Redis, before an upstream.
type scene struct {
	*upstream
	proxies [2]string         // their addresses
	led     *throttle.Limiter // the budgets of the policy "led", as a Go program has them
	kits    *kits
}

// newScene builds throttle, and starts the upstream, a Redis and two proxies.
func newScene(t *testing.T) *scene {
	s := &scene{upstream: newUpstream(t)}
	dir := t.TempDir()
	file, authority := filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "authority.pem")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(policies, "HOST", s.host())), 0o600))
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, certificate, 0o600))

	program := filepath.Join(dir, "throttle")
	build(t, "../../../../cmd/throttle", "go", "build", "-o", program, ".")
	redis := redistest.Single(t)
	for i := range s.proxies {
		s.proxies[i] = startProxy(t, authority, program, "proxy", file, "--redis", redis.URL(), "--max-wait", "10m",
			"--private", "127.0.0.1", "--listen", "127.0.0.1:0")
	}
	var err error
	s.led, err = throttle.NewLimiter(redisstore.New(redis.Client(t), redisstore.Options{}), throttle.Policy{Name: "led", Keyed: true, Limit: throttle.Concurrency(1)})
	require.NoError(t, err)
	s.kits = newKits(t)
	return s
}

// startProxy returns the address of a proxy that trusts an authority.
func startProxy(t *testing.T, authority, program string, args ...string) string {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+authority)
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	gone, err := crew.Spawn(cmd) // so that it ends with this program
	require.NoError(t, err)
	address, told := make(chan string), make(chan struct{})
	go func() {
		defer close(told)
		defer close(address)
		for lines := bufio.NewScanner(talk); lines.Scan(); {
			t.Log(lines.Text())
			if _, at, found := strings.Cut(lines.Text(), "the proxy is at http://"); found {
				address <- strings.TrimSuffix(at, "/HOST/")
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-gone
		<-told
	})
	at, ok := <-address
	require.True(t, ok, "the proxy has ended")
	return at
}

// A place is what the requests of a client in a story are for.
type place struct{ client, story string }

func (p place) path() string { return p.client + "/" + p.story }

// baseURL is what a client gets.
func (s *scene) baseURL(address string, p place) string {
	return "http://" + address + "/" + s.host() + "/" + p.path() + "/v1"
}

// send sends a call of the test's own.
func (s *scene) send(ctx context.Context, address string, p place) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.baseURL(address, p)+"/chat/completions", strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// call is send for a call that has an answer: its status and its header.
func (s *scene) call(t *testing.T, address string, p place) (status int, h http.Header) {
	resp, err := s.send(t.Context(), address, p)
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}
