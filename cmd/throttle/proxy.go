package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/servers/waitapi"
	"github.com/fleetthrottle/throttle/store"
)

// A proxyServer is the proxy command: its flags, and the state that serves them.
type proxyServer struct {
	sidecar
	upstreamFlags []string
	upstreams     []upstreamAt
	tunnels       int
	callerIdle    time.Duration
	private       []string
	permits       time.Duration // longest lifetime of permits
	penalties     time.Duration // longest penalty by a permit's caller, 0 for none

	// Of throttle run, and zero for throttle proxy.
	watch  func(context.Context, throttle.Event)    // for the page
	extend func(*policyfile.File) []throttle.Policy // returns the rows in force for a file

	table   atomic.Pointer[proxy.Table] // of the policies in force
	handler *proxy.Handler
	waiting *waitapi.Handler
	door    bounded // at listen
}

// newProxy returns the command proxy, which serves the proxy.
func newProxy() *cobra.Command {
	c, _ := newProxyWith()
	return c
}

// newProxyWith returns the command proxy, and the server that its flags set.
func newProxyWith() (*cobra.Command, *proxyServer) {
	s := &proxyServer{sidecar: sidecar{
		name: "proxy", tokenVariable: "THROTTLE_PROXY_TOKEN", misuse: "send requests",
		listen: "127.0.0.1:7070", maxWait: proxy.DefaultMaxWait, held: proxy.DefaultHeld, perBudget: proxy.DefaultHeldPerBudget,
	}}
	c := &cobra.Command{
		Use: "proxy [FILE]",
		Example: `  throttle proxy policies.yaml
  throttle proxy policies.yaml --redis redis://127.0.0.1:6379`,
		Short: "Hold the requests of programs in other languages",
		Long: "Serve a proxy that holds requests until the policies of FILE have room for them.\n" +
			"Programs reach https://api.example.com/v1 by the base URL http://127.0.0.1:7070/api.example.com/v1,\n" +
			"or by http://api.example.com/v1 with HTTP_PROXY=http://127.0.0.1:7070, or by an --upstream.\n" +
			"With --redis all proxies and programs share the budgets. Without FILE the proxy follows the file that is pushed there.",
	}

	s.complete(c, s.check, s.follow)
	f := c.Flags()
	f.Lookup("held").Usage += ", and of MiB for their bodies"
	f.StringArrayVar(&s.upstreamFlags, "upstream", nil, "address that serves a single host of the file, such as 127.0.0.1:7071=api.example.com; may be repeated")
	f.DurationVar(&s.callerIdle, "caller-idle", proxy.DefaultCallerIdle, "maximum time that a caller may stall while it sends its body or reads its answer")
	f.IntVar(&s.tunnels, "tunnels", proxy.DefaultTunnels, "maximum number of open tunnels of programs with HTTP_PROXY; 0 refuses all tunnels")
	f.DurationVar(&s.permits, "permit-lifetime", waitapi.DefaultMaxLifetime, "maximum lifetime of a permit of the waiting API that is not released; callers that ask for no lifetime get a minute")
	f.DurationVar(&s.penalties, "permit-penalty-max", waitapi.DefaultMaxPenalty, "maximum time for which /v1/penalize of the waiting API closes a budget; 0 refuses the call")
	f.StringSliceVar(&s.private, "private", nil, "host of the file, without a port, that may have a private address")

	return c, s
}

// check returns all mistakes in the flags at once, parses --upstream, and reads the token. path is FILE, or "".
func (s *proxyServer) check(path string) error {
	upstreams, wrong := upstreamsOf(s.upstreamFlags, s.listen, s.expose)
	s.upstreams = upstreams

	all := mistakes{s.sidecar.check(path, upstreams)}
	all.note(s.callerIdle <= 0, "--caller-idle: use more than 0")
	all.note(s.permits <= 0, "--permit-lifetime: use more than 0")
	all.note(s.penalties < 0, "--permit-penalty-max: use 0 or more")
	all.note(s.tunnels < 0, "--tunnels: use 0 or more")

	for _, host := range s.private {
		// An IPv6 address has colons, and is a host.
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		all.note(err != nil && strings.ContainsAny(host, ":/"), "--private "+host+": use a host, without a scheme, a port and a path")
	}

	return errors.Join(append(all, wrong...)...)
}

// follow builds the proxy's handlers, and keeps their policies as in a file until ctx ends: the file at path or, if path is "",
// the standby or else the pushed file. It returns a function that serves.
func (s *proxyServer) follow(ctx context.Context, path string, store throttle.Store, reporter *fleet.Reporter) (serve func(context.Context) error, err error) {
	observers := []func(context.Context, throttle.Event){proxy.Observe}
	if s.watch != nil {
		observers = append(observers, s.watch)
	}

	transport, limiters, err := s.enforce(store, proxy.NewBase(s.private...), observers...)
	if err != nil {
		return nil, err
	}

	// In the flags 0 means none. In the packages 0 means the default, and a negative number means none.
	s.waiting, err = waitapi.New(waitapi.Config{Limiters: limiters, MaxWait: s.maxWait, Held: s.held, MaxLifetime: s.permits, MaxPenalty: cmp.Or(s.penalties, -1)})
	if err != nil {
		return nil, err
	}

	s.handler, err = proxy.New(proxy.Config{
		OutsideLink: s.tellOutside, BlindTunnel: s.tellBlind, Tunnels: cmp.Or(s.tunnels, -1),
		Transport: transport, Waiting: s.waiting, Table: s.table.Load, Token: s.token, Local: !isExposed(s.listen),
		MaxWait: s.maxWait, Held: s.held, HeldPerBudget: s.perBudget, CallerIdle: s.callerIdle, LetIn: letIn,
	})
	if err != nil {
		return nil, err
	}

	follower, err := s.followFile(ctx, path, reporter, func(f *policyfile.File) error {
		policies := f.Policies
		forLimiters := f.ForLimiters()

		// throttle run adds the rows of --limit, and the presets that the file does not name.
		if s.extend != nil {
			policies = s.extend(f)
			forLimiters = throttle.WithoutAnswers(append(slices.Clone(policies), f.Named...))
		}

		// Set the policies before the table: no host may be reachable before its limits are in force.
		if err := errors.Join(transport.SetPolicies(policies), limiters.SetPolicies(forLimiters)); err != nil {
			return err
		}

		s.use(proxy.NewTable(policies, f.Tunnels...))
		s.tellTunnels(f.Tunnels)
		return nil
	})
	if err != nil {
		return nil, err
	}

	// The first file is loaded now, so check that it has the hosts of all upstream addresses.
	if err := errors.Join(missing(s.upstreams, s.table.Load())...); err != nil {
		return nil, err
	}

	s.door.bound = &bound{most: int64(s.connections)}
	s.operate(transport, follower, s.numbers(follower), s.upstreams)
	return s.listenAndServe, nil
}

// numbers returns the metrics of the proxy itself. promthrottle has the metrics of policies.
func (s *proxyServer) numbers(follower *policyfile.Follower) numbers {
	return func(gauge, counter report) {
		n := s.handler.Stats()
		gauge("throttle_proxy_held", "Requests that wait in the proxy now.", int64(n.Held))
		gauge("throttle_proxy_body_bytes", "Bodies that the proxy has in memory now.", n.BodyBytes)
		gauge("throttle_proxy_connections", "Connections of callers that are open now.", s.door.open.Load())
		gauge("throttle_proxy_file_applied", "Whether the file of policies as it was read last is in force, or waits to be.", isApplied(follower))
		counter("throttle_proxy_connections_refused_total", "Connections of callers that were closed because too many were open.", s.door.refused.Load())
		counter("throttle_proxy_left_total", "Callers that left before their request had an answer.", n.Left)
		counter("throttle_proxy_aborted_total", "Answers that ended in the middle.", n.Aborted)
		counter("throttle_proxy_links_round_total", "Links in answers that lead round the proxy.", n.LinksRound)
		counter("throttle_proxy_tunnels_ended_total", "Idle tunnels that were ended to make room for others.", n.TunnelsEnded)
		counter("throttle_proxy_unreadable_total", "Answers in br, zstd or another coding that no policy can read.", n.Unreadable)
		for reason, refused := range n.Refused {
			counter("throttle_proxy_refused_total", "Requests that the proxy answered itself, by reason.", refused, reason)
		}
	}
}

// use puts a table in force. If it replaces a table, use warns of upstream addresses whose hosts it lacks.
func (s *proxyServer) use(table *proxy.Table) {
	before := s.table.Swap(table)

	// At the start follow reports the missing hosts as an error.
	if before == nil {
		return
	}
	for _, err := range missing(s.upstreams, table) {
		s.say(err.Error() + " any more, and requests to the address are refused")
	}
}

// tellOutside prints a link that bypasses the proxy.
func (s *proxyServer) tellOutside(host string) {
	s.sayOnce("an answer has a link to " + fleet.Clean(host, longestHost) + ", which leads round the proxy: a program that follows it is not held there")
}

// tellTunnels prints which hosts the file opens for TLS tunnels, and that their requests are not counted.
func (s *proxyServer) tellTunnels(hosts []string) {
	for _, host := range hosts {
		s.sayOnce("tunnels to " + host + " are carried, as the file says: each connection counts as one request, and the requests inside are neither counted nor held")
	}
}

// tellBlind prints the refusal of a tunnel.
func (s *proxyServer) tellBlind(detail string) { s.sayOnce("a tunnel of TLS is refused: " + detail) }

// An admin serves operators of the proxy. No answer contains a key, a URL or a credential.
type admin struct {
	statuses func(context.Context) (map[throttle.Budget]throttle.Status, error)
	policies func() []throttle.Policy // in force
	file     func() policyfile.State
	metrics  prometheus.Gatherer
	local    bool        // only loopback reaches it
	stopping atomic.Bool // the proxy stops

	mu      sync.Mutex // held while the store is asked, so that concurrent requests share one call
	asked   time.Time
	budgets map[throttle.Budget]throttle.Status // as of asked
	err     error
}

// An answer of the store is reused for freshFor. A question to the store takes
// at most askedFor.
const (
	freshFor = time.Second
	askedFor = 2 * time.Second
)

// handler returns the handler of the admin's paths. If only the loopback reaches it, it refuses requests to foreign hosts.
func (a *admin) handler() http.Handler {
	paths := http.NewServeMux()
	paths.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "alive\n") })
	paths.HandleFunc("GET /readyz", a.ready)
	paths.HandleFunc("GET /upstreams", a.upstreams)
	paths.Handle("GET /metrics", promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Defend against DNS rebinding, as the proxy does.
		if a.local && !inbound.IsLoopbackHost(r.Host) {
			http.Error(w, "reach this as localhost or by an address of the loopback", http.StatusForbidden)
			return
		}

		w.Header().Set("Cache-Control", "no-store")
		paths.ServeHTTP(w, r)
	})
}

// ask returns the states of the budgets, or the error of the store. For freshFor after a question to the store it returns the
// same answer again, also if that was an error.
func (a *admin) ask() (map[throttle.Budget]throttle.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	// Probes and scrapes share an answer, so that they cost the store little.
	if time.Since(a.asked) < freshFor {
		return a.budgets, a.err
	}
	ctx, stop := context.WithTimeout(context.Background(), askedFor)
	defer stop()
	a.budgets, a.err = a.statuses(ctx)
	a.asked = time.Now()
	return a.budgets, a.err
}

// ready reports whether the proxy can hold and forward requests.
func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	if why := a.unready(); why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "not ready: "+why+"\n")
		return
	}
	io.WriteString(w, "ready\n")
}

// unready returns why the proxy is not ready, or "". A new file that cannot be put in force does not count:
// its predecessor is in force.
func (a *admin) unready() string {
	if a.stopping.Load() {
		return "the proxy ends"
	}
	if a.file().InForce == "" {
		return "no file is in force"
	}
	if _, err := a.ask(); err != nil {
		return "the store of the budgets does not answer"
	}
	return ""
}

// A closedPolicy is a policy with closed budgets.
type closedPolicy struct {
	Policy  string    `json:"policy"`
	Until   time.Time `json:"until"`   // when the last of them opens
	Budgets int       `json:"budgets"` // number of closed budgets that this proxy knows
}

// An upstreamsResult is the answer at /upstreams.
type upstreamsResult struct {
	Version  int            `json:"version"`
	Closed   []closedPolicy `json:"closed"`
	Complete bool           `json:"complete"` // the store answered every question
}

// upstreams lists closed policies. The status is 503 if there are any.
func (a *admin) upstreams(w http.ResponseWriter, _ *http.Request) {
	all, err := a.ask()
	result := upstreamsResult{outputVersion, a.closed(all), err == nil}
	w.Header().Set("Content-Type", "application/json")
	if len(result.Closed) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(result)
}

// closed returns the policies with closed budgets, in order of their names. It leaves out shadow policies, which hold nothing.
func (a *admin) closed(all map[throttle.Budget]throttle.Status) []closedPolicy {
	shadows := make(map[string]bool)
	for _, p := range a.policies() {
		shadows[p.Name] = p.Shadow
	}

	// An empty list is [] in JSON, not null.
	closed := []closedPolicy{}
	for budget, b := range all {
		if b.Paused <= 0 || shadows[budget.Policy] {
			continue
		}

		until := time.Now().Add(b.Paused).UTC().Truncate(time.Millisecond)
		i := slices.IndexFunc(closed, func(c closedPolicy) bool { return c.Policy == budget.Policy })
		if i < 0 {
			closed = append(closed, closedPolicy{budget.Policy, until, 1})
			continue
		}

		// The policy is open again when the last of its budgets is.
		c := &closed[i]
		c.Budgets++
		if until.After(c.Until) {
			c.Until = until
		}
	}

	slices.SortFunc(closed, func(x, y closedPolicy) int { return cmp.Compare(x.Policy, y.Policy) })
	return closed
}

// numbers is a Prometheus collector of the numbers of a server. It reports each number by gauge or by counter.
type numbers func(gauge, counter report)

// A report reports a number. Numbers of one name differ in their reason, if they have one.
type report func(name, help string, v int64, reason ...string)

// Describe implements [prometheus.Collector].
func (n numbers) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(n, to) }

// Collect implements [prometheus.Collector]. A number with a reason gets it as the label "reason".
func (n numbers) Collect(to chan<- prometheus.Metric) {
	of := func(kind prometheus.ValueType) report {
		return func(name, help string, v int64, reason ...string) {
			to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"reason"}[:len(reason)], nil), kind, float64(v), reason...)
		}
	}
	n(of(prometheus.GaugeValue), of(prometheus.CounterValue))
}

// isApplied is 1 if the latest file is in force, or waits for its grace time, and 0 if not.
func isApplied(follower *policyfile.Follower) int64 {
	if follower.State().Err != nil {
		return 0
	}
	return 1
}

// news finds the events that stderr reports: closed budgets, and throttle off. Events come for each caller, and news once
// for each change. It is safe for concurrent use. A [storeNews] has the news of the store.
type news struct {
	now func() time.Time

	mu     sync.Mutex
	closed map[string]time.Time // reported end of the closure, by budget
	offAt  time.Time            // the last request that passed because throttle was off
}

const (
	mostClosed = 1000        // how many closed budgets are reported
	sameEnd    = time.Second // two answers of one ban differ by less
	sameOff    = time.Minute // a longer pause between requests that pass makes the next one news
)

// of returns the line for an event and notes the event, or returns "" if the event is no news.
func (n *news) of(e throttle.Event) string {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch e.Kind {
	case throttle.EventPenalized, throttle.EventClosed:
		return n.closing(e)
	case throttle.EventOpened:
		if _, isKnown := n.closed[e.Budget]; isKnown {
			delete(n.closed, e.Budget)
			return e.Budget + " is open again"
		}

	case throttle.EventOff:
		before := n.offAt
		n.offAt = n.now()
		if n.offAt.Sub(before) > sameOff {
			off := store.Off{By: e.Note.By, Reason: e.Note.Reason}
			return fmt.Sprintf("throttle is %v: requests pass without a limit", off)
		}
	}

	return ""
}

// closing returns the line for an event about a closed budget, and notes the budget. It returns "" if the closing is known, or if
// mostClosed budgets are noted as closed. The mutex is held.
func (n *news) closing(e throttle.Event) string {
	now := n.now()
	end := now.Add(e.Duration)

	// A caller that meets a known closing is no news.
	if told, ok := n.closed[e.Budget]; ok && end.Before(told.Add(sameEnd)) {
		return ""
	}
	if n.closed == nil {
		n.closed = make(map[string]time.Time)
	}

	// Make room: forget budgets that have opened without an event, because no caller met them again.
	if len(n.closed) >= mostClosed {
		maps.DeleteFunc(n.closed, func(_ string, opens time.Time) bool { return opens.Before(now) })
		if len(n.closed) >= mostClosed {
			return ""
		}
	}

	n.closed[e.Budget] = end
	line := e.Budget + " is closed for " + brief(e.Duration) + ": "
	switch {
	case e.Kind == throttle.EventPenalized:
		return line + "the upstream refused a request"
	case e.Note != (store.PauseNote{}):
		return line + e.Note.String()
	}

	return line + "another program was refused, or an operator paused it"
}

// A storeNews reports once that the store does not answer, and once that it answers again. The start of a request says nothing
// about the store: the request's policies may have the scope node or be shadows, the start may have been booked before the
// outage, or throttle may be off. So an outage is over when the store has booked a start after the last failure, and then
// all servers that had failed answer. A storeNews is safe for concurrent use.
type storeNews struct {
	say     func(line string)
	servers telemetry.Outages // the servers that failed: a Redis Cluster has several

	mu     sync.Mutex // not held while a line is written: a reader of stderr that stands still must not hold requests up
	failed time.Time  // the last failure, or zero if no outage was reported
	booked time.Time  // the last booking
	asking bool       // an ask is under way, or comes soon
}

// fail notes a failure of the store, and reports the first failure of an outage. ctx is the context of the failure's event, and
// knows the server that failed.
func (n *storeNews) fail(ctx context.Context, err error) {
	n.servers.Note(ctx)
	n.mu.Lock()
	isFirst := n.failed.IsZero()
	n.failed = time.Now()
	n.mu.Unlock()

	if isFirst {
		n.say("the store does not answer: " + err.Error())
	}
}

// book notes that the store has booked a start. During an outage the servers are asked a moment later: by then the callers
// that waited have their answers, and a store that answers only now and then has failed again.
func (n *storeNews) book() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed.IsZero() {
		return
	}

	n.booked = time.Now()
	if !n.asking {
		n.asking = true
		time.AfterFunc(freshFor, n.ask)
	}
}

// ask reports that the outage is over if the store has booked a start since the last failure, and all servers that failed
// answer now. The answers alone would not do: a server that can be read but not written answers, too. Otherwise the outage
// goes on, and the next booking brings the next ask.
func (n *storeNews) ask() {
	allAnswer := n.servers.Longest(context.Background()) == 0
	n.mu.Lock()
	n.asking = false
	isOver := allAnswer && n.booked.After(n.failed)
	if isOver {
		n.failed = time.Time{}
	}
	n.mu.Unlock()

	if isOver {
		n.say("the store answers again")
	}
}

// A heardStore is a store that tells a storeNews of its bookings.
type heardStore struct {
	throttle.Store
	news *storeNews
}

// Book implements [throttle.Store]. Starts under policies of the scope node alone are booked in memory.
func (s heardStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if err == nil && g.OK && slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return !c.Node }) {
		s.news.book()
	}
	return g, err
}
