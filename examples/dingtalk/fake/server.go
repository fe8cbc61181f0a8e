package fake

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// A Server is the fake. It is an http.Handler for both of DingTalk's hosts;
// which family a request belongs to is read from its path, so one listener
// serves both. It is safe for concurrent use.
type Server struct {
	options Options
	company *Company

	mu     sync.Mutex
	log    []Arrival
	bans   int
	tokens map[string]token

	banned    map[string]time.Time // address: until when
	addresses map[string]*window
	seconds   map[appAPI]*window
	crowds    map[string]*window // API
	robots    map[string]*window // token
	closed    map[string]time.Time
	month     string
	metered   int
}

type appAPI struct{ app, api string }

type token struct {
	app string
	end time.Time
}

// New makes a fake with a company of its own.
func New(o Options) *Server {
	o = o.withDefaults()
	return &Server{
		options:   o,
		company:   newCompany(o.People, o.Departments),
		tokens:    make(map[string]token),
		banned:    make(map[string]time.Time),
		addresses: make(map[string]*window),
		seconds:   make(map[appAPI]*window),
		crowds:    make(map[string]*window),
		robots:    make(map[string]*window),
		closed:    make(map[string]time.Time),
	}
}

// Company returns the address book that the fake serves.
func (s *Server) Company() *Company { return s.company }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint, api := route(r)
	refusal, delay := s.arrive(r, endpoint, api)
	date := time.Now().Add(s.options.Skew)
	if refusal != nil {
		refusal.write(w, date)
		return
	}
	time.Sleep(delay)
	endpoint.serve(s, r).write(w, date)
}

// arrive counts a request and decides on it. It returns the refusal, or nil
// and for how long to hold the request.
func (s *Server) arrive(r *http.Request, e endpoint, api string) (*answer, time.Duration) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr) // "" is as good a name as any
	credential := e.credential(r)

	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{
		Server: s, api: api, credential: credential,
		Arrival: Arrival{At: time.Now(), API: api, Address: address},
	}
	refusal := c.judge(e)
	s.log = append(s.log, c.Arrival)
	return refusal, c.delay
}
