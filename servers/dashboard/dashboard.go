// Package dashboard is a page that shows what budgets are like: what is closed, for how
// long, why and by whom; who waits, and for what; how much of each limit is used. From
// the page an operator can pause a budget and resume it.
//
// A [Handler] serves the page below any path of a program's own server. It reads a
// [Source]: [Fleet] for the programs that share budgets in Redis, or a [Process] for one
// program. It reads once a second for all viewers together, and only while somebody
// looks, unless [Handler.Watch] keeps its history.
//
//	watched := dashboard.NewProcess(memstore.New())
//	transport, err := throttle.New(throttle.Config{Store: watched, Observe: watched.Observe, …})
//	page, err := dashboard.New(dashboard.Config{Source: watched, Token: os.Getenv("DASHBOARD_TOKEN")})
//	http.Handle("/throttle/", http.StripPrefix("/throttle", page))
//
// # Who may look, and who may act
//
// Who looks needs the token, or the login of the program around the page: [Config.Login]. Who wants
// to pause or resume needs the token always. [Config.Local] lets those look without the token who
// reach the page at a loopback address of the machine. Leave it off where a proxy on the machine leads
// to the page: nginx as it ships cannot be told from somebody who sits there.
//
// # What it costs
//
// A page that nobody looks at, or watches over, costs no read, and no goroutine runs for it. A hundred
// pages cost the source as much as one. The page on the [dashboard] has what it shows.
//
// [dashboard]: https://github.com/fleetthrottle/throttle/blob/main/docs/dashboard.md
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

// DefaultBudgets is how many budgets a page shows that is not told otherwise.
const DefaultBudgets = 100

// mostBudgets bounds Config.Budgets: each budget is a question each second.
const mostBudgets = 1000

// A Config says what a page shows, and to whom. Only Source is required.
type Config struct {
	// Source is what the page shows: [Fleet], or a [Process].
	Source Source

	// Token is what a viewer must know to look, to pause and to resume. It has at least
	// 128 random bits, as "openssl rand -hex 16" prints them. A link to the page that
	// ends with "#token=" and the token unlocks it. Defaults to none: then nobody can
	// act, and Login or Local must say who may look.
	Token string

	// Login is the login of the program around the page: it says who asks, and whether
	// they may look. The name stands in the audit trail. Whoever may look may act only
	// with the token. Defaults to none.
	Login func(*http.Request) (user string, ok bool)

	// Local lets requests look without the token that come in at a loopback address of
	// this machine, by such an address or as localhost, and without a field of a proxy.
	// Where a proxy on this machine leads to the page, leave it off: nginx as it ships
	// sends no such field, so all that it lets in would count as local. Defaults to
	// false: looking needs the token, or the login.
	Local bool

	// TrustProxy says that the only way to the page leads through a proxy that sets
	// X-Forwarded-For and X-Forwarded-Proto. Over https cookies are Secure then, and
	// with Local a request is from here if the address that the proxy names is, and if
	// there is one. Defaults to false.
	TrustProxy bool

	// WrongToken is called when somebody has tried wrong tokens: with the address that
	// the last attempt came from, and how many attempts there were since the page
	// began; at the first one, and after that at most once a minute. The page shows
	// the same. It needs a Token. Defaults to none.
	WrongToken func(client string, attempts int)

	// Budgets is how many budgets are shown at most: those that are closed first, then
	// those used most. Each of them is one question to the store each second while
	// somebody looks. Defaults to [DefaultBudgets]; at most 1,000.
	Budgets int

	// Label returns what a viewer may call a budget of a policy, whose name is the policy
	// and the beginning of its hashed key, such as "shop/f32021364bac"; "" if there is
	// no better name. Each viewer sees it, and nothing of it is stored. It is called for
	// each budget that is read, by one goroutine at a time. Defaults to none.
	Label func(policy, budget string) string

	// Title is the name of what is shown: of characters that can be printed, at most 100.
	// Defaults to "throttle".
	Title string
}

// A Handler serves the page. It is safe for concurrent use, and has nothing to close. Mount it with a
// path that ends with a slash: the page's addresses are relative to that.
type Handler struct {
	mux     http.Handler
	guard   *guard
	sampler *sampler
}

// New returns the page that a Config describes.
func New(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	g := &guard{
		token: token(c.Token), login: c.Login, local: c.Local, trustProxy: c.TrustProxy,
		wrong: wrongTokens{tell: c.WrongToken}, revoked: make(map[string]time.Time),
	}

	from := c.Source.reader(cmp.Or(c.Budgets, DefaultBudgets))
	if c.Label != nil {
		from = &labelled{from, c.Label}
	}

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

	// A page of another site cannot act with the operator's cookie.
	return &Handler{http.NewCrossOriginProtection().Handler(g.refuseWrong(mux)), g, s}, nil
}

// longestTitle is how many characters a Title has at most.
const longestTitle = 100

// check returns what is wrong with the configuration, all of it.
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

// Watch reads the source every ten seconds while nobody looks, until ctx ends, so that a page that is opened at night
// shows what was before: each reading of the last hour, one point a minute of the last 24 hours, and since when a budget is
// closed. It returns when ctx has ended. Without Watch a page that nobody looks at reads nothing.
func (h *Handler) Watch(ctx context.Context) { h.sampler.watch(ctx) }

// policyOfContent lets the page use what the binary has, and nothing else.
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
	h.mux.ServeHTTP(w, r)
}
