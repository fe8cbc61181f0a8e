package dashboard

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

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

	// Token is what an operator must know to pause and resume, and who is not on this
	// machine to look. It has at least 128 random bits, as "openssl rand -hex 16" prints
	// them. Defaults to none: then nobody can act.
	Token string

	// Login is the login of the program around the page: it says who asks, and whether
	// they may look. The name stands in the audit trail. Whoever may look may act only
	// with the token. Defaults to none: requests to a loopback address may look.
	Login func(*http.Request) (user string, ok bool)

	// TrustProxy says that the only way to the page leads through a proxy that sets
	// X-Forwarded-For. Defaults to false: requests through a proxy need the token, or
	// the login.
	TrustProxy bool

	// Budgets is how many budgets are shown at most: those that are closed first, then
	// those used most. Each of them is one question to the store each second while
	// somebody looks. Defaults to [DefaultBudgets]; at most 1,000.
	Budgets int

	// Title is the name of what is shown. Defaults to "throttle".
	Title string
}

// A Handler serves the page. It is safe for concurrent use, and has nothing to close. Mount it with a
// path that ends with a slash: the page's addresses are relative to that.
type Handler struct {
	mux        http.Handler
	sampler    *sampler
	source     Source
	token      token
	login      func(*http.Request) (string, bool)
	trustProxy bool
	title      string
}

// New returns the page that a Config describes.
func New(c Config) (*Handler, error) {
	switch {
	case c.Source == nil:
		return nil, errors.New("dashboard: Config.Source is missing: use Fleet or NewProcess")
	case c.Budgets < 0 || c.Budgets > mostBudgets:
		return nil, fmt.Errorf("dashboard: Config.Budgets is %d: use 1 to %d, or 0 for %d", c.Budgets, mostBudgets, DefaultBudgets)
	}
	if c.Token != "" {
		if err := token(c.Token).check(); err != nil {
			return nil, err
		}
	}
	h := &Handler{
		source: c.Source, token: token(c.Token), login: c.Login, trustProxy: c.TrustProxy,
		title:   fleet.Clean(cmp.Or(c.Title, "throttle"), 100),
		sampler: newSampler(c.Source, cmp.Or(c.Budgets, DefaultBudgets), rand.Text()[:8]),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.page)
	mux.HandleFunc("GET /{file}", h.file)
	mux.Handle("GET /events", h.reader(h.stream))
	mux.Handle("GET /history", h.reader(h.history))
	mux.Handle("GET /why", h.reader(h.why))
	mux.HandleFunc("GET /access", h.tellAccess)
	mux.HandleFunc("POST /token", h.takeToken)
	mux.HandleFunc("POST /forget", h.forgetToken)
	mux.HandleFunc("POST /pause", h.pause)
	mux.HandleFunc("POST /resume", h.resume)
	h.mux = http.NewCrossOriginProtection().Handler(mux) // a page of another site cannot act with the operator's cookie
	return h, nil
}

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

// reader serves those who may read.
func (h *Handler) reader(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := h.accessOf(r); !a.Read {
			answerError(w, h.refusal(&a), languageOf(r).word(a.why))
			return
		}
		serve(w, r)
	})
}

// refusal returns the status for who may not read.
func (h *Handler) refusal(a *access) int {
	if a.Token {
		return http.StatusUnauthorized
	}
	return http.StatusForbidden
}
