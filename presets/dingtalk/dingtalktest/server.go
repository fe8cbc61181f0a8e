package dingtalktest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// A Server is a DingTalk for both families of the API: the path of a call tells
// the family. It is safe for concurrent use, and has nothing to close.
type Server struct {
	apis *http.ServeMux

	mu     sync.Mutex
	routes map[string]route // by pattern
	rules  *rules
	log    []Arrival
}

// New returns a Server.
func New(o Options) *Server {
	s := &Server{apis: http.NewServeMux(), routes: make(map[string]route), rules: newRules(o.withDefaults())}
	for _, r := range builtIn {
		s.add(r, func(http.ResponseWriter, *http.Request) {})
	}
	return s
}

// HandleFunc adds an API: h answers the calls that the limits let through. The pattern is a pattern
// of [http.ServeMux], and all calls that match it are calls of one API. If the pattern has a
// method, calls with a different method are refused.
func (s *Server) HandleFunc(pattern string, h http.HandlerFunc) {
	r := route{pattern: pattern}
	if method, path, ok := strings.Cut(pattern, " "); ok {
		r.method, r.pattern = method, strings.TrimSpace(path)
	}
	s.add(r, h)
}

// add adds an API. A route with an answer of its own does not call h.
func (s *Server) add(r route, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apis.HandleFunc(r.pattern, h)
	s.routes[r.pattern] = r
}

// maxBody is how much of a body is read. No call needs more.
const maxBody = 1 << 20

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr) // "" is as good a name as any
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))

	answer := s.arrive(r, body, address)
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if answer == nil {
		answer = s.apis.ServeHTTP
	}
	answer(w, r)
}

// RoundTrip implements [http.RoundTripper] without a network. All calls come
// from one address.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	// A RoundTripper must not change the request.
	in := r.Clone(r.Context())
	in.RemoteAddr = "192.0.2.1:1"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()

	if err := r.Context().Err(); err != nil {
		return nil, err
	}

	w := httptest.NewRecorder()
	s.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = r

	return resp, nil
}

// arrive counts a call. It returns what refuses or answers the call, or nil for an
// API of [Server.HandleFunc] whose call was let through.
func (s *Server) arrive(r *http.Request, body []byte, address string) http.HandlerFunc {
	_, api := s.apis.Handler(r)

	// Judge and log under one lock, so that the log has the order of the calls.
	s.mu.Lock()
	defer s.mu.Unlock()

	c := &call{Arrival{At: time.Now(), API: api, Address: address}, r, s.routes[api], readParameters(r, body), s.rules}
	answer := c.judge()
	if answer == nil && c.route.answer != nil {
		answer = c.route.answer(c)
	}

	// A path that is no API is in the log, too.
	c.API = cmp.Or(c.API, r.URL.Path)
	s.log = append(s.log, c.Arrival)
	return answer
}

// Token returns a token of an application, whether there is such an application or
// not, as if the application had asked for it now: for a test of calls that is no
// test of the login.
func (s *Server) Token(app string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules.issue(app, time.Now())
}

// ExpireTokens ends the life of all tokens, as two hours would.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, t := range s.rules.tokens {
		s.rules.tokens[text] = token{app: t.app}
	}
}

// Log returns all calls up to now, in their order.
func (s *Server) Log() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Refusals returns how many calls were refused, by [Arrival.Refusal]. It is
// empty if all were served.
func (s *Server) Refusals() map[string]int {
	all := make(map[string]int)
	for _, a := range s.Log() {
		all[a.Refusal]++
	}
	maps.DeleteFunc(all, func(code string, _ int) bool { return code == "" })
	return all
}

// Bans returns how often an address was banned.
func (s *Server) Bans() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules.bans
}

// Most returns the largest number of calls of an API that arrived in any interval
// of length per.
func (s *Server) Most(api string, per time.Duration) int {
	var at []time.Duration
	log := s.Log()
	for _, a := range log {
		if a.API == api {
			at = append(at, a.At.Sub(log[0].At))
		}
	}
	return stat.Most(at, per)
}

// UserIDs returns the ids of all people in the address book, in order.
func (s *Server) UserIDs() []string { return slices.Sorted(maps.Keys(s.rules.book.of)) }

// String returns the counts as a table for people. "Quota used" is the shortest time in which the
// limit lets an application's calls through, as a share of the time that they took.
func (s *Server) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "API\tcalls\trefused\tmost in any second\tquota used")
	limit := s.rules.options.Edition.PerSecond
	log := s.Log()

	var apis []string
	calls, refused := make(map[string][]time.Duration), make(map[string]int)
	for _, a := range log {
		if calls[a.API] == nil {
			apis = append(apis, a.API)
		}

		calls[a.API] = append(calls[a.API], a.At.Sub(log[0].At))
		if a.Refusal != "" {
			refused[a.API]++
		}
	}

	slices.Sort(apis)
	for _, api := range apis {
		at := calls[api]
		used := "–"

		shortest, took := (len(at)-1)/limit, at[len(at)-1]-at[0]
		if shortest > 0 && took > 0 {
			used = fmt.Sprintf("%.0f %%", 100*float64(shortest)/took.Seconds())
		}

		fmt.Fprintf(w, "%s\t%d\t%d\t%d of %d\t%s\n", api, len(at), refused[api], stat.Most(at, time.Second), limit, used)
	}

	w.Flush()
	return b.String() + fmt.Sprintf("bans: %d\n", s.Bans())
}
