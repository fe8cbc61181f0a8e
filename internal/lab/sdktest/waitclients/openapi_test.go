//go:build unix

package waitclients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// TestOpenAPI: the handler gives each answer that its OpenAPI file documents, in the form that is documented, and
// no other; and it takes the requests that the file allows, and no others.
func TestOpenAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.play()
		documented := map[string]bool{}
		for path, item := range a.doc.Paths.Map() {
			for method, operation := range item.Operations() {
				for status := range operation.Responses.Map() {
					documented[method+" "+path+" "+status] = true
				}
			}
		}
		require.Equal(t, slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(a.answers)))
		a.stop()
	})
}

// play has the handler give all its answers.
func (a *api) play() {
	const p, q = `{"demands": [{"policy": "p"}]}`, `{"demands": [{"policy": "q", "key": "k", "cost": 1}, {"policy": "p", "free": true}], "wait": 0.5, "priority": "high", "lifetime": 9}`
	a.do("GET", "openapi.yaml", "", 200)
	a.do("POST", "openapi.yaml", "{}", 405)
	permit := a.acquire(q)
	a.do("POST", "acquire", q, 429)
	a.do("POST", "acquire", q, 202, "Prefer: respond-async")
	a.do("POST", "acquire", strings.Replace(q, "{", `{"place": "", `, 1), 202)
	a.do("POST", "acquire", strings.Replace(q, "{", `{"place": "A+", `, 1), 400)
	a.do("POST", "acquire", `{"demands": [{"policy": "p", "cost": 1000}]}`, 429)
	a.do("POST", "penalize", `{"permit": "`+permit+`", "duration": 0.5, "policies": ["p"]}`, 204)
	a.do("POST", "penalize", `{"permit": "`+permit+`", "duration": 0.5}`, 403, "X-Strict: of a process whose callers may not close budgets")
	a.do("POST", "settle", `{"permit": "`+permit+`", "cost": 1, "policy": "q", "key": "k"}`, 204)
	a.do("POST", "settle", `{"permit": "`+permit+`", "cost": 1, "policy": "q"}`, 400)

	for _, path := range []string{"acquire", "release", "settle", "penalize"} {
		a.do("GET", path, "", 405)
		a.do("POST", path, `{"permit": 7, "odd": 1}`, 400)
		a.do("POST", path, strings.Repeat(" ", 1<<17), 413)
		a.do("POST", path, p, 415, "Content-Type: text/plain")
		a.slow(path)
		if path != "acquire" {
			body := map[string]string{"release": `{"permit": "%s"}`, "settle": `{"permit": "%s", "cost": 1}`, "penalize": `{"permit": "%s", "duration": 1}`}[path]
			a.do("POST", path, fmt.Sprintf(body, "no-such"), 404)
			time.Sleep(10 * time.Second)
			a.do("POST", path, fmt.Sprintf(body, permit), 410)
		}
	}
	released := a.acquire(p)
	a.withSlowBodies(1024, func() { a.do("POST", "release", `{"permit": "`+released+`"}`, 503) })
	a.do("POST", "release", `{"permit": "`+released+`"}`, 204)

	begun := a.acquire(p, "Idempotency-Key: begun", "Prefer: wait=3", "Priority: u=1")
	a.do("POST", "acquire", q, 422, "Idempotency-Key: begun")
	a.do("POST", "settle", `{"permit": "`+begun+`", "cost": 1}`, 204)
	a.do("POST", "acquire", p, 409, "Idempotency-Key: begun")

	again := a.acquire(p, "Idempotency-Key: again")
	pauses, err := a.limiters.Limiter("p")
	require.NoError(a, err)
	require.NoError(a, pauses.Pause(a.Context(), "", 20*time.Second))
	time.Sleep(time.Second)
	var repeat sync.WaitGroup
	repeat.Go(func() { a.do("POST", "acquire", p, 410, "Idempotency-Key: again") })
	synctest.Wait()
	a.do("POST", "settle", `{"permit": "`+again+`", "cost": 1}`, 409)
	a.do("POST", "penalize", `{"permit": "`+again+`", "duration": 1}`, 409)
	a.do("POST", "release", `{"permit": "`+again+`"}`, 204)
	repeat.Wait()
	time.Sleep(time.Minute)

	last := a.acquire(p)
	a.store.away = true
	a.do("POST", "settle", `{"permit": "`+last+`", "cost": 2}`, 503)
	a.do("POST", "penalize", `{"permit": "`+last+`", "duration": 20}`, 503)
	a.do("POST", "acquire", p, 503)
}

// An api is a handler that is served in virtual time.
type api struct {
	*testing.T
	limiters *throttle.Limiters
	store    *awayStore
	client   *http.Client
	dial     func(context.Context, string, string) (net.Conn, error)
	stop     func()

	doc     *openapi3.T
	router  routers.Router
	checks  sync.Mutex
	answers map[string]bool // "POST /v1/acquire 200"
}

// newAPI serves the API, and reads its description from it. Requests with X-Strict get a handler that takes no penalty.
func newAPI(t *testing.T) *api {
	a := &api{T: t, store: &awayStore{Store: memstore.New()}, answers: make(map[string]bool)}
	var err error
	a.limiters, err = throttle.NewLimiters(throttle.Config{Store: a.store, Policies: []throttle.Policy{
		{Name: "p", Limit: throttle.PerHour(100)}, {Name: "q", Limit: throttle.PerHour(1), Keyed: true},
	}})
	require.NoError(t, err)
	h, err := waitapi.New(waitapi.Config{Limiters: a.limiters, MaxWait: 30 * time.Second})
	require.NoError(t, err)
	listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	strict, err := waitapi.New(waitapi.Config{Limiters: a.limiters, MaxPenalty: -1})
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Strict") != "" {
			strict.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})}
	go server.Serve(listener)
	a.dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		listener.conns <- theirs
		return ours, nil
	}
	a.client = &http.Client{Transport: &http.Transport{DialContext: a.dial}}
	a.stop = func() {
		a.client.CloseIdleConnections()
		require.NoError(t, h.Close(context.Background()))
		server.Close()
	}

	resp, err := a.client.Get("http://127.0.0.1:7070/v1/openapi.yaml")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	a.doc, err = openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, a.doc.Validate(t.Context()))
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.FileBodyDecoder)
	a.router, err = legacy.NewRouter(a.doc)
	require.NoError(t, err)
	return a
}

// withSlowBodies calls f while so many bodies are on their way that do not come.
func (a *api) withSlowBodies(many int, f func()) {
	a.Helper()
	defer synctest.Wait() // until the handler knows that they do not come
	for range many {
		conn, err := a.dial(a.Context(), "", "")
		require.NoError(a, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST /v1/release HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n")
		require.NoError(a, err)
	}
	synctest.Wait()
	f()
}

// acquire returns the name of a permit.
func (a *api) acquire(body string, headers ...string) string {
	a.Helper()
	var answer struct{ Permit string }
	require.NoError(a, json.Unmarshal(a.do("POST", "acquire", body, 200, headers...), &answer))
	return answer.Permit
}

// do sends a request, and requires that its answer has this status, and is documented. A request that the handler takes has
// to be one that is documented, too.
func (a *api) do(method, path, body string, status int, headers ...string) []byte {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), method, "http://127.0.0.1:7070/v1/"+path, strings.NewReader(body))
	require.NoError(a, err)
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := a.client.Do(r)
	require.NoError(a, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(a, err)
	require.Equal(a, status, resp.StatusCode, "%s %s", body, text)
	r.Body = io.NopCloser(strings.NewReader(body))
	a.check(r, resp, text)
	return text
}

// check requires that an answer, and the request of a good answer, are documented.
func (a *api) check(r *http.Request, resp *http.Response, text []byte) {
	a.Helper()
	a.checks.Lock()
	defer a.checks.Unlock()
	documented := r.Clone(r.Context())
	if resp.StatusCode == http.StatusMethodNotAllowed {
		documented.Method = strings.Split(resp.Header.Get("Allow"), ", ")[0]
	}
	route, parameters, err := a.router.FindRoute(documented)
	require.NoError(a, err)
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route}
	if err := openapi3filter.ValidateRequest(r.Context(), input); resp.StatusCode != http.StatusMethodNotAllowed {
		switch {
		case resp.StatusCode/100 == 2:
			require.NoError(a, err)
		case bytes.Contains(text, []byte(`"errors"`)):
			require.Error(a, err)
		}
	}
	require.NoError(a, openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(text)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}), "%s", text)
	a.answers[documented.Method+" "+r.URL.Path+" "+fmt.Sprint(resp.StatusCode)] = true
}

// slow sends a request whose body does not come.
func (a *api) slow(path string) {
	conn, err := a.dial(a.Context(), "", "")
	require.NoError(a, err)
	defer conn.Close()
	r, err := http.NewRequestWithContext(a.Context(), "POST", "http://127.0.0.1:7070/v1/"+path, conn)
	require.NoError(a, err)
	_, err = fmt.Fprintf(conn, "POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{", path)
	require.NoError(a, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	require.NoError(a, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(a, err)
	require.Equal(a, http.StatusRequestTimeout, resp.StatusCode, "%s", text)
	r.Body = http.NoBody
	a.check(r, resp, text)
}
