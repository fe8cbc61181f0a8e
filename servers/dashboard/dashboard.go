// Package dashboard serves a page that shows the state of budgets: which are
// closed, for how long, why and by whom; who waits, and for what; how much of
// each limit is used. An operator can pause and resume a budget there.
//
// A [Handler] serves the page below any path of a program's own server. It
// reads a [Source]: [Fleet] for the programs that share budgets in Redis, or a
// [Process] for one program. It reads once a second for all viewers together,
// and only while the page is open, unless [Handler.Watch] keeps a history.
//
//	watched := dashboard.NewProcess(memstore.New())
//	transport, err := throttle.New(throttle.Config{Store: watched, Observe: watched.Observe, …})
//	page, err := dashboard.New(dashboard.Config{Source: watched, Token: os.Getenv("DASHBOARD_TOKEN")})
//	http.Handle("/throttle/", http.StripPrefix("/throttle", page))
//
// # Who may look, and who may act
//
// Viewers need the token, or the login of the program around the page:
// [Config.Login]. Pausing and resuming always need the token. [Config.Local]
// admits viewers without a token at a loopback address of the machine. Leave it
// off behind a proxy on the machine: requests through a default nginx look like
// requests of a local user.
//
// # What it costs
//
// While nobody views or watches the page, it runs no goroutine and reads
// nothing. A hundred pages cost the source as much as one. See the [dashboard]
// page for the contents.
//
// [dashboard]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/fleet.md#the-dashboard
package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// DefaultBudgets is the default of [Config.Budgets].
const DefaultBudgets = 100

// mostBudgets bounds Config.Budgets: each budget costs one store call per
// second.
const mostBudgets = 1000

// Config configures a [Handler]. Source is required, and one of Token, Login
// and Local.
type Config struct {
	// Source provides the data: [Fleet], or a [Process]. Required.
	Source Source

	// Token is the secret for looking, pausing and resuming. It must have at
	// least 128 random bits, as "openssl rand -hex 16" prints them. A link to
	// the page with "#token=TOKEN" unlocks it. Defaults to "": nobody can act,
	// and Login or Local decides who may look.
	Token string

	// Login authenticates a viewer by the login of the program around the page.
	// It returns the name for the audit log, and whether the viewer may look.
	// Acting still needs the token. Many goroutines call it. Defaults to nil:
	// no login.
	Login func(*http.Request) (user string, ok bool)

	// Local admits viewers without the token if the request came in at a
	// loopback address, names a loopback address or localhost as its host, and
	// has no header of a proxy. Leave it off behind a proxy on this machine: a
	// default nginx sends no such header, so its clients would count as local.
	// Defaults to false: looking needs the token, or the login.
	Local bool

	// TrustProxy says that the page is reachable only through a proxy that sets
	// X-Forwarded-For and X-Forwarded-Proto. Cookies are then Secure over
	// https, and with Local a request counts as local only if the proxy names a
	// loopback address. Defaults to false.
	TrustProxy bool

	// WrongToken is called after attempts with a wrong token: at the first
	// attempt, then at most once a minute. It gets the address of the latest
	// attempt, and the number of attempts since the handler was created. The
	// page shows the same. It needs a Token. Defaults to nil: no callback.
	WrongToken func(client string, attempts int)

	// LetIn is called for each request for data, such as the stream of a page,
	// of a viewer that may look, by many goroutines. A server that bounds its
	// connections can keep these. Defaults to nil: no callback.
	LetIn func(r *http.Request)

	// Budgets limits how many budgets the page shows, at most 1,000: closed
	// budgets first, then the busiest. Each costs one store call per second
	// while the page is open. Defaults to [DefaultBudgets].
	Budgets int

	// Label returns a readable name for a budget of a policy, or "". The budget
	// is named by its policy and the beginning of its hashed key, such as
	// "shop/f32021364bac". Every viewer sees the label. It is not stored. Label
	// is called for each budget in each reading, by one goroutine at a time.
	// Defaults to nil: no labels.
	Label func(policy, budget string) string

	// Title is the name of the fleet or program on the page: at most 100
	// printable characters. Defaults to "throttle".
	Title string
}

// Handler serves the page. It is safe for concurrent use and needs no Close.
// Mount it at a path that ends with a slash, because the page uses relative
// URLs. Create it with [New].
type Handler struct {
	mux     http.Handler
	guard   *guard
	sampler *sampler
}

// New returns a handler, or an error that lists all mistakes in c.
func New(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	g := &guard{
		token: token(c.Token), login: c.Login, local: c.Local, trustProxy: c.TrustProxy,
		wrong: wrongTokens{tell: c.WrongToken}, letIn: c.LetIn, revoked: make(map[string]time.Time),
	}

	from := c.Source.reader(cmp.Or(c.Budgets, DefaultBudgets))
	if c.Label != nil {
		from = &labelled{from, c.Label}
	}

	// A random epoch makes event ids of an earlier process invalid.
	s := newSampler(from, rand.Text()[:8])
	s.wrong = &g.wrong
	f := &front{g, cmp.Or(c.Title, "throttle")}
	o := &office{g, c.Source, s.poke}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", f.page)
	mux.HandleFunc("GET /{file}", f.file)
	mux.Handle("GET /events", g.reader(s.stream))
	mux.Handle("GET /history", g.reader(s.answerHistory))
	mux.Handle("GET /why", g.reader(s.answerWhy))
	mux.HandleFunc("GET /access", o.tellAccess)
	mux.HandleFunc("POST /token", o.takeToken)
	mux.HandleFunc("POST /forget", o.forgetToken)
	mux.HandleFunc("POST /pause", o.pause)
	mux.HandleFunc("POST /resume", o.resume)
	mux.Handle("POST /find", g.reader(s.answerFind))

	// Refuse cross-origin requests: a page of a foreign site must not act with the operator's cookie.
	return &Handler{http.NewCrossOriginProtection().Handler(g.refuseWrong(mux)), g, s}, nil
}

// longestTitle is how many characters Title may have.
const longestTitle = 100

// check returns all mistakes in the configuration.
func (c *Config) check() error {
	var mistakes []error
	if c.Source == nil {
		mistakes = append(mistakes, errors.New("dashboard: Config.Source is missing: use Fleet or NewProcess"))
	}
	if c.Token == "" && c.Login == nil && !c.Local {
		mistakes = append(mistakes, errors.New("dashboard: nobody could look at the page: set Config.Token, Config.Login, or Config.Local if no proxy on this machine leads to it"))
	}
	if c.Budgets < 0 || c.Budgets > mostBudgets {
		mistakes = append(mistakes, fmt.Errorf("dashboard: Config.Budgets is %d: use 1 to %d, or 0 for %d", c.Budgets, mostBudgets, DefaultBudgets))
	}
	if c.Token != "" {
		mistakes = append(mistakes, token(c.Token).check())
	}
	if c.Token == "" && c.WrongToken != nil {
		mistakes = append(mistakes, errors.New("dashboard: Config.WrongToken is never called, because there is no Token: leave it out"))
	}
	if fleet.Clean(c.Title, longestTitle) != c.Title {
		mistakes = append(mistakes, fmt.Errorf("dashboard: Config.Title has more than %d characters, or some that cannot be printed: use others", longestTitle))
	}

	return errors.Join(mistakes...)
}

// Watch reads the source every ten seconds while nobody views the page, until
// ctx ends. A page opened at night then shows what happened before: every
// reading of the last hour, one point per minute of the last 24 hours, and
// since when a budget is closed. Without Watch a page without viewers reads
// nothing.
func (h *Handler) Watch(ctx context.Context) { h.sampler.watch(ctx) }

// policyOfContent restricts the page to files of the binary.
const policyOfContent = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policyOfContent)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")

	// Limit how long a slow body holds the connection, even if the handler does not read the body: net/http reads
	// the rest itself. The error is ignored: a ResponseWriter without read deadlines has no limit to set.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}

	h.mux.ServeHTTP(w, r)
}
