// Package downstream has the services from which the example batch pulls: an
// API of orders, and a database of shipments with a driver for database/sql.
// Both count every call, and refuse calls above their limits and during a ban,
// as real services do.
package downstream

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Options set the size and the limits of the services. The zero value of each
// field is its default.
type Options struct {
	Orders, Shipments int           // highest ids; default to [Orders] and [Shipments]
	OrdersPerSecond   int           // defaults to [OrdersPerSecond]
	QueriesPerSecond  int           // defaults to [QueriesPerSecond]
	QueriesAtOnce     int           // defaults to [QueriesAtOnce]
	Latency           time.Duration // duration of a call; defaults to [Latency]

	// Ban is how long all calls are refused after BeforeBan calls. Defaults to
	// 0: no ban.
	Ban time.Duration
}

// Defaults of [Options].
const (
	Orders           = 27_000
	Shipments        = 19_000
	OrdersPerSecond  = 40
	QueriesPerSecond = 12
	QueriesAtOnce    = 4
	Latency          = 100 * time.Millisecond
	BeforeBan        = 300
)

// Services are both services, behind one HTTP server.
type Services struct {
	options Options
	mux     *http.ServeMux
	begin   time.Time

	mu        sync.Mutex
	calls     []Call
	atOnce    int // queries in flight
	bannedTil time.Time
}

// Call is the record of one call.
type Call struct {
	At      time.Duration `json:"at"` // since the services began
	Query   bool          `json:"query,omitempty"`
	OfUser  bool          `json:"ofUser,omitempty"` // for one order, not for a page
	Refused bool          `json:"refused,omitempty"`
}

// Counts are all calls, in order of arrival.
type Counts struct {
	Now   time.Duration `json:"now"` // since the services began
	Calls []Call        `json:"calls"`
}

// New returns services without calls.
func New(o Options) *Services {
	set(&o.Orders, Orders)
	set(&o.Shipments, Shipments)
	set(&o.OrdersPerSecond, OrdersPerSecond)
	set(&o.QueriesPerSecond, QueriesPerSecond)
	set(&o.QueriesAtOnce, QueriesAtOnce)
	set(&o.Latency, Latency)
	s := &Services{options: o, mux: http.NewServeMux(), begin: time.Now()}
	s.mux.HandleFunc("GET /v1/orders", s.counted(Call{}, s.page))
	s.mux.HandleFunc("GET /v1/orders/{id}", s.counted(Call{OfUser: true}, s.order))
	s.mux.HandleFunc("POST /query", s.counted(Call{Query: true}, s.query))
	s.mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) { write(w, s.Counts()) })
	return s
}

// set sets a zero value to its default.
func set[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// ServeHTTP implements http.Handler.
func (s *Services) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Counts returns the calls so far.
func (s *Services) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{time.Since(s.begin), append([]Call(nil), s.calls...)}
}

// Orders returns the orders with ids from first to last.
func (s *Services) Orders(first, last int) []Order {
	return ordersOf(max(first, 1), min(last, s.options.Orders))
}

// Shipments returns the shipments with ids from first to last.
func (s *Services) Shipments(first, last int) []Shipment {
	return shipmentsOf(max(first, 1), min(last, s.options.Shipments))
}

// Ban refuses every call for d.
func (s *Services) Ban(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bannedTil = time.Now().Add(d)
}

// counted returns a handler that counts a call, and answers it unless it must be refused.
func (s *Services) counted(c Call, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Count the call before it takes its time: a limit of starts counts arrivals.
		wait, done := s.arrive(c)
		defer done()
		if wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			http.Error(w, "too many calls", http.StatusTooManyRequests)
			return
		}
		select {
		case <-time.After(s.options.Latency):
			answer(w, r)
		case <-r.Context().Done():
		}
	}
}

// arrive counts a call. It returns how long the caller must wait, if the call is refused, and a function to
// call at its end.
func (s *Services) arrive(c Call) (wait time.Duration, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.At = time.Since(s.begin)
	limit := s.options.OrdersPerSecond
	if c.Query {
		limit = s.options.QueriesPerSecond
		// A refused query occupies its place until it is answered, too.
		s.atOnce++
	}
	switch {
	case time.Now().Before(s.bannedTil):
		wait = time.Until(s.bannedTil)
	case s.inLastSecond(c) >= limit || s.atOnce > s.options.QueriesAtOnce:
		wait = time.Second
	}
	c.Refused = wait > 0
	s.calls = append(s.calls, c)
	// Ban everybody once, after a fixed number of calls.
	if len(s.calls) == BeforeBan && s.options.Ban > 0 {
		s.bannedTil = time.Now().Add(s.options.Ban)
	}
	return wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.Query {
			s.atOnce--
		}
	}
}

// inLastSecond returns how many calls of the same service came in the second before a call.
func (s *Services) inLastSecond(c Call) (n int) {
	// The calls are in the order of time, so begin at the end.
	for i := len(s.calls) - 1; i >= 0 && s.calls[i].At >= c.At-time.Second; i-- {
		if s.calls[i].Query == c.Query {
			n++
		}
	}
	return n
}

// page answers with the orders of a range of ids.
func (s *Services) page(w http.ResponseWriter, r *http.Request) {
	first, err := strconv.Atoi(r.FormValue("from"))
	last, err2 := strconv.Atoi(r.FormValue("to"))
	if err != nil || err2 != nil {
		http.Error(w, "from and to must be ids", http.StatusBadRequest)
		return
	}
	write(w, s.Orders(first, last))
}

// order answers with one order.
func (s *Services) order(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if rows := s.Orders(id, id); err == nil && len(rows) == 1 {
		write(w, rows[0])
		return
	}
	http.Error(w, fmt.Sprintf("there is no order %q", r.PathValue("id")), http.StatusNotFound)
}

// query answers one query of the database: the ids of its only statement.
func (s *Services) query(w http.ResponseWriter, r *http.Request) {
	var q query
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Statement != Statement || len(q.IDs) != 2 {
		http.Error(w, "the database knows one statement: "+Statement, http.StatusBadRequest)
		return
	}
	write(w, s.Shipments(q.IDs[0], q.IDs[1]))
}

func write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // an error means that the caller has gone
}

// Order is a row of the API.
type Order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// Shipment is a row of the database.
type Shipment struct {
	ID      int    `json:"id"`
	Carrier string `json:"carrier"`
	Grams   int    `json:"grams"`
}

// Statement is the only statement that the database knows.
const Statement = "SELECT id, carrier, grams FROM shipments WHERE id BETWEEN ? AND ? ORDER BY id"

// A query is the request of the driver to the database.
type query struct {
	Statement string `json:"statement"`
	IDs       []int  `json:"ids"`
}

// ordersOf returns the existing orders with ids from first to last.
func ordersOf(first, last int) (rows []Order) {
	for id := first; id <= last; id++ {
		if exists(id) {
			rows = append(rows, Order{id, fmt.Sprintf("customer %d", id*7919%1000), 100 + id*31%9900})
		}
	}
	return rows
}

// shipmentsOf returns the existing shipments with ids from first to last.
func shipmentsOf(first, last int) (rows []Shipment) {
	for id := first; id <= last; id++ {
		if exists(id) {
			rows = append(rows, Shipment{id, []string{"by road", "by rail", "by air"}[id%3], 50 + id*17%20000})
		}
	}
	return rows
}

// exists reports whether a row exists. In real tables some ids are deleted, sometimes a whole page of them.
func exists(id int) bool { return id%7 != 0 && (id <= 500 || id > 600) }
