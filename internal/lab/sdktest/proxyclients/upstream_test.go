package proxyclients

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// An upstream plays the API of a model: paths are /CLIENT/STORY/v1/chat/completions, or
// /CLIENT/STORY/v1/messages. It counts the windows of the story "held", and bans whoever sends one
// request too many.
type upstream struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	arrived map[string][]time.Time // by place
	banned  map[string]bool
	codings map[string]string // the last Accept-Encoding

	gates sync.Map // by place: chan gate, for the stories that a test leads
}

// A gate is where a request waits in the upstream for the test.
type gate struct {
	pass chan struct{}   // is closed by the test
	gone <-chan struct{} // is closed when the caller has left
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, arrived: make(map[string][]time.Time), banned: make(map[string]bool), codings: make(map[string]string)}
	u.Server = httptest.NewUnstartedServer(u)
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	return u
}

// host is where the upstream listens.
func (u *upstream) host() string { return u.Listener.Addr().String() }

// count returns how many requests have arrived at a place.
func (u *upstream) count(p place) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.arrived[p.path()])
}

// coding returns which compression the last request to a place asked for.
func (u *upstream) coding(p place) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.codings[p.path()]
}

// gate returns where the requests to a place tell that they wait.
func (u *upstream) gate(p place) chan gate {
	gates, _ := u.gates.LoadOrStore(p.path(), make(chan gate))
	return gates.(chan gate)
}

// The rule of the story "held", which the policy file has as "2/s".
const (
	heldMost = 2
	heldPer  = time.Second
)

// arrive notes a request that came at a time, and returns whether its caller is banned.
func (u *upstream) arrive(now time.Time, path string, r *http.Request) (banned bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := append(u.arrived[path], now)
	u.arrived[path] = all
	u.codings[path] = r.Header.Get("Accept-Encoding")
	if strings.HasSuffix(path, "/held") && len(all) > heldMost && now.Sub(all[len(all)-1-heldMost]) < heldPer {
		u.banned[path] = true
	}
	return u.banned[path]
}

// ServeHTTP implements [http.Handler].
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	var question struct{ Stream bool }
	if len(parts) > 1 && parts[1] == "signed" && !isSigned(r) {
		http.Error(w, `{"message":"the signature does not match"}`, http.StatusForbidden)
		return
	}
	if len(parts) != 4 || parts[2] != "v1" || json.NewDecoder(r.Body).Decode(&question) != nil {
		http.Error(w, `{"error":{"message":"this is no call of a model"}}`, http.StatusBadRequest)
		return
	}
	place, call := parts[0]+"/"+parts[1], parts[3]
	if u.arrive(now, place, r) {
		answer(w, r, http.StatusTooManyRequests, `{"error":{"message":"banned, because of one request too many"}}`)
		return
	}
	switch parts[1] {
	case "led", "stopped", "streamed":
		if question.Stream {
			u.stream(w, r, place, call)
			return
		}
		u.await(place, r)
	case "banned":
		w.Header().Set("Retry-After", "3600")
		answer(w, r, http.StatusTooManyRequests, `{"error":{"type":"rate_limit","message":"slow down"}}`)
		return
	case "coded":
		answer(w, r, http.StatusOK, `{"errcode":90018,"errmsg":"too many requests"}`)
		return
	}
	answer(w, r, http.StatusOK, completion(call))
}

// await holds a request until the test lets it pass, or its caller has left.
func (u *upstream) await(path string, r *http.Request) {
	g := gate{make(chan struct{}), r.Context().Done()}
	gates, _ := u.gates.LoadOrStore(path, make(chan gate))
	select {
	case gates.(chan gate) <- g:
	case <-u.t.Context().Done():
		return
	}
	select {
	case <-g.pass:
	case <-g.gone:
	case <-u.t.Context().Done():
	}
}

// stream sends a text in two events. The test lets the second pass.
func (u *upstream) stream(w http.ResponseWriter, r *http.Request, place, call string) {
	w.Header().Set("Content-Type", "text/event-stream")
	events := chatEvents
	if call == "messages" {
		events = messageEvents
	}
	fmt.Fprint(w, events[0])
	_ = http.NewResponseController(w).Flush()
	u.await(place, r)
	fmt.Fprint(w, events[1])
}

// answer sends JSON, compressed if the caller understands that.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	defer z.Close()
	_, _ = io.WriteString(z, text)
}

// completion returns the answer of a model.
func completion(call string) string {
	if call == "messages" {
		return `{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello"}],` +
			`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
	}
	return `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello"}}]}`
}

var chatEvents = [2]string{
	`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"first"}}]}` + "\n\n",
	`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"last"}}]}` + "\n\ndata: [DONE]\n\n",
}

var messageEvents = [2]string{
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"first"}}` + "\n\n",
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"last"}}` + "\n\n" +
		"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n",
}
