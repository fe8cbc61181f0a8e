// Package downstream has the services from which the example batch pulls: an
// API of orders, and a database of shipments with a driver for database/sql.
// Both count every call, and refuse calls above their limits and during a ban,
// as real services do.
package downstream

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// Options set the size and the limits of the services. The zero value of each
// field is its default.
type Options struct {
	Orders, Shipments int           // highest ids; default to [Orders] and [Shipments]
	Tolerance         int           // multiplies the limits; defaults to 1
	Latency           time.Duration // duration of a call; defaults to [Latency]
}

// Defaults of [Options], and the limits.
const (
	Orders           = 27_000
	Shipments        = 19_000
	OrdersPerSecond  = 40
	QueriesPerSecond = 12
	QueriesAtOnce    = 4
	Latency          = 100 * time.Millisecond
)

// Services are both services, behind one HTTP server.
type Services struct {
	options Options
	http.Handler
	begin time.Time

	mu        sync.Mutex
	calls     []Call
	atOnce    int       // queries in flight
	bannedTil time.Time // until then every call is refused
}

// Call is the record of one call.
type Call struct {
	At             time.Duration // since the services began
	Query, Refused bool
}

// New returns services that nobody has called yet.
func New(o Options) *Services {
	set(&o.Orders, Orders)
	set(&o.Shipments, Shipments)
	set(&o.Tolerance, 1)
	set(&o.Latency, Latency)

	mux := http.NewServeMux()
	s := &Services{options: o, Handler: mux, begin: time.Now()}
	mux.HandleFunc("GET /v1/orders", s.counted(false, func(first, last int) any { return s.Orders(first, last) }))
	mux.HandleFunc("GET /query", s.counted(true, func(first, last int) any { return s.Shipments(first, last) }))
	return s
}

// set sets a zero value to its default.
func set[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// Calls returns the calls that came, in order of arrival.
func (s *Services) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// String returns the counts of both services, a line each: the API's first.
func (s *Services) String() (text string) {
	for i, limit := range []int{OrdersPerSecond, QueriesPerSecond} {
		var at []time.Duration
		refused := 0
		for _, c := range s.Calls() {
			if isQuery := i == 1; c.Query != isQuery {
				continue
			}
			at = append(at, c.At)
			if c.Refused {
				refused++
			}
		}
		text += fmt.Sprintf("%-10s %4d calls, %d refused; at most %d of %d in any second\n",
			[]string{"orders:", "shipments:"}[i], len(at), refused, stat.Most(at, time.Second), limit)
	}
	return text
}

// Ban refuses every call for d.
func (s *Services) Ban(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bannedTil = time.Now().Add(d)
}

// counted returns a handler that counts each call, and refuses it or answers with rows of a range of ids. query says that the calls are queries of the
// database.
func (s *Services) counted(query bool, rows func(first, last int) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Count the call before it takes its time: a limit of starts counts arrivals.
		wait, done := s.arrive(query)
		defer done()
		if wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			http.Error(w, "too many calls", http.StatusTooManyRequests)
			return
		}

		first, err := strconv.Atoi(r.FormValue("from"))
		last, err2 := strconv.Atoi(r.FormValue("to"))
		if err != nil || err2 != nil {
			http.Error(w, "from and to must be ids", http.StatusBadRequest)
			return
		}

		select {
		case <-time.After(s.options.Latency):
			_ = json.NewEncoder(w).Encode(rows(first, last)) // an error means that the caller has gone
		case <-r.Context().Done():
		}
	}
}

// arrive counts a call. wait is 0 or, if the call is refused, how long the caller must wait. done must be called when
// the call is answered.
func (s *Services) arrive(query bool) (wait time.Duration, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Call{At: time.Since(s.begin), Query: query}

	// Only queries are limited in flight.
	limit, inFlight := OrdersPerSecond, 0
	if query {
		limit, inFlight = QueriesPerSecond, 1
	}

	// A refused query is in flight until it is answered, too.
	s.atOnce += inFlight

	switch {
	case time.Now().Before(s.bannedTil):
		wait = time.Until(s.bannedTil)
	case s.inLastSecond(c) >= s.options.Tolerance*limit, query && s.atOnce > s.options.Tolerance*QueriesAtOnce:
		wait = time.Second // by then the calls of this second do not count
	}

	c.Refused = wait > 0
	s.calls = append(s.calls, c)
	return wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.atOnce -= inFlight
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

// Orders returns the existing orders with ids from first to last.
func (s *Services) Orders(first, last int) (rows []Order) {
	for id := max(first, 1); id <= min(last, s.options.Orders); id++ {
		if exists(id) {
			rows = append(rows, Order{id, fmt.Sprintf("customer %d", id*7919%1000), 100 + id*31%9900})
		}
	}
	return rows
}

// Shipments returns the existing shipments with ids from first to last.
func (s *Services) Shipments(first, last int) (rows []Shipment) {
	for id := max(first, 1); id <= min(last, s.options.Shipments); id++ {
		if exists(id) {
			rows = append(rows, Shipment{id, []string{"by road", "by rail", "by air"}[id%3], 50 + id*17%20000})
		}
	}
	return rows
}

// exists reports whether a row exists. In real tables some ids are deleted, sometimes a whole page of them.
func exists(id int) bool { return id%7 != 0 && (id <= 500 || id > 600) }

// Reach returns a transport that connects to one address, whatever the host of the URL.
func Reach(address string, connections int) http.RoundTripper {
	return &http.Transport{
		MaxIdleConnsPerHost: connections,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
}

// Statement is the only statement that the database knows.
const Statement = "SELECT id, carrier, grams FROM shipments WHERE id BETWEEN ? AND ? ORDER BY id"

// BusyError is the database's refusal of a query: too many per second, too many
// at once, or a ban.
type BusyError struct{ RetryAfter time.Duration }

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("the database is busy: try again after %v", e.RetryAfter)
}

// The driver is registered as "warehouse". Its data source name is the address of [Services].
func init() { sql.Register("warehouse", warehouse{}) }

type warehouse struct{}

// Open implements driver.Driver.
func (warehouse) Open(address string) (driver.Conn, error) { return conn{address: address}, nil }

// A conn queries the database at its address by HTTP. Its remaining methods are not called.
type conn struct {
	driver.Conn
	address string
}

// Close implements driver.Conn.
func (conn) Close() error { return nil }

// QueryContext implements driver.QueryerContext. The statement is always [Statement], and args are its ids. A refusal is a *[BusyError].
func (c conn) QueryContext(ctx context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	url := fmt.Sprintf("http://%s/query?from=%v&to=%v", c.address, args[0].Value, args[1].Value)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}

	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		r := new(rows)
		return r, json.NewDecoder(resp.Body).Decode(&r.left)
	case http.StatusTooManyRequests:
		// The services send whole seconds. Without an error of Atoi only the BusyError is returned.
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, errors.Join(&BusyError{time.Duration(seconds) * time.Second}, err)
	}
	return nil, errors.New("warehouse: " + resp.Status)
}

// rows are the rows of an answer.
type rows struct{ left []Shipment } // left are the rows that Next has not returned

// Columns implements driver.Rows.
func (*rows) Columns() []string { return []string{"id", "carrier", "grams"} }

// Close implements driver.Rows.
func (*rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(row []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	row[0], row[1], row[2] = int64(r.left[0].ID), r.left[0].Carrier, int64(r.left[0].Grams)
	r.left = r.left[1:]
	return nil
}
