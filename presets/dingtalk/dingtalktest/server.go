package dingtalktest

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// A Server is a DingTalk for both families of the API: the path of a call tells
// the family. It is safe for concurrent use, and has nothing to close.
type Server struct {
	book addressBook
	apis *http.ServeMux

	mu    sync.Mutex
	rules *rules
	log   []Arrival
}

// New returns a Server.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{book: newAddressBook(o.People), apis: http.NewServeMux(), rules: newRules(o)}
	s.HandleFunc("/gettoken", getToken)
	s.HandleFunc("/v1.0/oauth2/accessToken", accessToken)
	s.HandleFunc("/topapi/v2/department/listsub", s.book.listSub)
	s.HandleFunc("/topapi/v2/user/list", s.book.listUsers)
	s.HandleFunc("/v1.0/contact/users/{unionId}", contact)
	s.HandleFunc("/robot/send", done)
	return s
}

// HandleFunc adds an API: h answers the calls of it that the limits let through.
// The pattern is one of [http.ServeMux], and all calls that match it are calls of
// one API.
func (s *Server) HandleFunc(pattern string, h http.HandlerFunc) { s.apis.HandleFunc(pattern, h) }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr) // "" is as good a name as any
	refuse := s.arrive(r, address)
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if refuse != nil {
		refuse(w, r)
		return
	}
	s.apis.ServeHTTP(w, r)
}

// RoundTrip implements [http.RoundTripper] without a network. All calls come
// from one address.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
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

// arrive counts a call. It returns what refuses the call, or nil.
func (s *Server) arrive(r *http.Request, address string) http.HandlerFunc {
	_, api := s.apis.Handler(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{Arrival{At: time.Now(), API: api, Address: address}, r, s.rules}
	refuse := c.judge()
	c.API = cmp.Or(c.API, r.URL.Path)
	s.log = append(s.log, c.Arrival)
	return refuse
}

// Log returns every call so far, in order.
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
func (s *Server) UserIDs() []string { return slices.Sorted(slices.Values(slices.Concat(s.book...))) }
