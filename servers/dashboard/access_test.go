package dashboard

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

const secret = "0123456789abcdef0123456789abcdef"

// newHandler returns the page of a source, at which this machine may look without the token.
func newHandler(t *testing.T, c Config) *Handler {
	if c.Source == nil {
		c.Source = &fixed{}
	}
	c.Local = c.Login == nil
	h, err := New(c)
	require.NoError(t, err)
	return h
}

// cameIn returns a request that came in at an address of this machine.
func cameIn(at string, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7072/access", nil)
	address, _ := net.ResolveTCPAddr("tcp", at)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(address)))
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		}
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// TestAccess: who is on this machine may look, who has the token may act, and a proxy in between changes that.
func TestAccess(t *testing.T) {
	const here, elsewhere = "127.0.0.1:7072", "10.0.0.7:7072"
	bearer, local := []string{"Authorization", "Bearer " + secret}, Config{Local: true}
	for name, c := range map[string]struct {
		config Config
		at     string
		fields []string
		read   bool
		act    bool
		why    string
	}{
		"here":                          {config: local, at: here, read: true},
		"here, IPv6":                    {config: local, at: "[::1]:7072", read: true},
		"here, not asked for":           {config: Config{Token: secret}, at: here, why: "token wanted"},
		"elsewhere":                     {config: local, at: elsewhere, why: "not local"},
		"elsewhere, no token there is":  {config: local, at: elsewhere, fields: bearer, why: "not local"},
		"elsewhere, wrong token":        {config: Config{Token: secret}, at: elsewhere, fields: []string{"Authorization", "Bearer " + secret + "0"}, why: "token wanted"},
		"elsewhere, token":              {config: Config{Token: secret}, at: elsewhere, fields: bearer, read: true, act: true},
		"here, token":                   {config: Config{Token: secret}, at: here, fields: bearer, read: true, act: true},
		"here, empty token":             {config: local, at: here, fields: []string{"Authorization", "Bearer "}, read: true},
		"proxy here":                    {config: local, at: here, fields: []string{"X-Forwarded-For", "127.0.0.1"}, why: "forwarded"},
		"proxy here, other field":       {config: local, at: here, fields: []string{"Forwarded", "for=127.0.0.1"}, why: "forwarded"},
		"proxy here, https":             {config: local, at: here, fields: []string{"X-Forwarded-Proto", "https"}, why: "forwarded"},
		"proxy here, token":             {config: Config{Token: secret}, at: here, fields: append([]string{"X-Forwarded-For", "9.9.9.9"}, bearer...), read: true, act: true},
		"trusted proxy, from elsewhere": {config: Config{Local: true, TrustProxy: true}, at: here, fields: []string{"X-Forwarded-For", "9.9.9.9"}, why: "not local"},
		"trusted proxy, a lie before":   {config: Config{Local: true, TrustProxy: true}, at: here, fields: []string{"X-Forwarded-For", "127.0.0.1, 9.9.9.9"}, why: "not local"},
		"trusted proxy, from here":      {config: Config{Local: true, TrustProxy: true}, at: here, fields: []string{"X-Forwarded-For", "9.9.9.9, 127.0.0.1"}, read: true},
		"trusted proxy, as it ships":    {config: Config{Local: true, TrustProxy: true}, at: here, why: "not local"},
		"trusted proxy, says nothing":   {config: Config{Local: true, TrustProxy: true}, at: here, fields: []string{"Via", "1.1 p"}, why: "not local"},
		"a name that leads here":        {config: local, at: here, fields: []string{"Host", "evil.example.com:7072"}, why: "other host"},
		"localhost":                     {config: local, at: here, fields: []string{"Host", "localhost:7072"}, read: true},
		"login":                         {config: Config{Login: known}, at: elsewhere, fields: []string{"X-User", "ann"}, read: true},
		"login refuses":                 {config: Config{Login: known}, at: here, why: "no login"},
		"login refuses, token":          {config: Config{Login: known, Token: secret}, at: here, fields: bearer, why: "no login"},
		"login and token":               {config: Config{Login: known, Token: secret}, at: elsewhere, fields: append([]string{"X-User", "ann"}, bearer...), read: true, act: true},
		"login alone does not act":      {config: Config{Login: known, Token: secret}, at: elsewhere, fields: []string{"X-User", "ann"}, read: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Source = &fixed{}
			h, err := New(c.config)
			require.NoError(t, err)
			a := h.guard.accessOf(cameIn(c.at, c.fields...))
			if a.Read {
				a.why = ""
			}
			require.Equal(t, c.why, a.why)
			require.Equal(t, c.read, a.Read)
			require.Equal(t, c.act, a.Act && a.Read)
		})
	}
}

// known is a login by a field.
func known(r *http.Request) (string, bool) {
	return r.Header.Get("X-User"), r.Header.Get("X-User") != ""
}

// TestToken: a token that can be guessed is refused, and a cookie proves the token until its end.
func TestToken(t *testing.T) {
	for _, weak := range []string{"secret", "0123456789abcdef0123456789abcde", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "with a space 0123456789abcdef"} {
		_, err := New(Config{Source: &fixed{}, Token: weak})
		require.Error(t, err, weak)
	}
	_, err := New(Config{Source: &fixed{}})
	require.ErrorContains(t, err, "nobody could look at the page: set Config.Token, Config.Login, or Config.Local")
	_, err = New(Config{Source: Fleet(nil), Token: "short", Budgets: -1})
	for _, wrong := range []string{"Config.Source is missing", "easy to guess", "Config.Budgets is -1"} {
		require.ErrorContains(t, err, wrong, "all mistakes at once")
	}
	_, err = throttle.New(throttle.Config{Store: NewProcess(nil)})
	require.ErrorContains(t, err, "NewProcess was given none")
	require.NoError(t, token("ZZHH4FIFDVPZNECYX76DAQW7G4").check())

	own := token(secret)
	proof := own.proof(time.Now().Add(time.Hour))
	require.NotContains(t, proof, secret)
	require.True(t, own.isProof(proof))
	require.False(t, token(secret[1:]+"x").isProof(proof))
	require.False(t, own.isProof(own.proof(time.Now().Add(-time.Second))))
	require.False(t, own.isProof("9"+proof))
	require.NotEqual(t, proof, own.proof(time.Now().Add(time.Hour)))
	for _, bad := range []string{".", "..", proof[:len(proof)-1], proof + ".", strings.TrimPrefix(proof, "1")} {
		require.False(t, own.isProof(bad), bad)
	}
	require.False(t, own.isProof(""))
	require.False(t, token("").isProof(token("").proof(time.Now().Add(time.Hour))))
	require.False(t, token("").is(""))

	for wrong, c := range map[string]Config{
		"Config.Title has more than 100 characters":                      {Local: true, Title: strings.Repeat("x", 101)},
		"Config.Title has more than 100 characters, or some that cannot": {Local: true, Title: "a\x1b[31m"},
		"Config.WrongToken is never called, because there is no Token":   {Local: true, WrongToken: func(string, int) {}},
	} {
		c.Source = &fixed{}
		_, err := New(c)
		require.ErrorContains(t, err, wrong)
	}
	_, err = New(Config{Source: &fixed{}, Local: true, Title: strings.Repeat("钉", 100)})
	require.NoError(t, err)
}

// TestBehindAProxyAsItShips: a proxy on this machine that sets no field, and names the page's own address as Host, lets
// in nobody without the token. That is what nginx does with a proxy_pass and nothing else.
func TestBehindAProxyAsItShips(t *testing.T) {
	h, err := New(Config{Source: &fixed{}, Token: secret})
	require.NoError(t, err)
	page := httptest.NewServer(h)
	defer page.Close()
	to, err := url.Parse(page.URL)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	defer proxy.Close()

	resp, text := get(t, http.DefaultClient, proxy.URL+"/history?budget=x")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Contains(t, text, "needs the token")
	resp, _ = get(t, http.DefaultClient, proxy.URL+"/history?budget=x", "Authorization", "Bearer "+secret)
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// asked returns the answer of a page to a request, and how long it took.
func asked(h http.Handler, r *http.Request) (*httptest.ResponseRecorder, time.Duration) {
	begun := time.Now()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, time.Since(begun)
}

// TestWrongTokens: attempts with wrong tokens take a second each, sixteen at a time, are told and shown, and never hold up
// the right one.
func TestWrongTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		source := &fixed{}
		h := newHandler(t, Config{Source: source, Token: secret, WrongToken: func(client string, attempts int) {
			told = append(told, fmt.Sprint(client, " ", attempts))
		}})
		attempt := func(token string) (status int, took time.Duration) {
			r := cameIn("127.0.0.1:7072", "Content-Type", "application/json")
			r.Method, r.URL.Path, r.RemoteAddr = http.MethodPost, "/token", "10.0.0.9:5555"
			r.Body = io.NopCloser(strings.NewReader(`{"token":"` + token + `"}`))
			w, took := asked(h, r)
			return w.Code, took
		}

		statuses := make(chan int, 40)
		for range 40 {
			go func() {
				status, took := attempt("x")
				if status == http.StatusUnauthorized && took != slowBy || status == http.StatusTooManyRequests && took != 0 {
					status = 0
				}
				statuses <- status
			}()
		}
		synctest.Wait()
		status, took := attempt(secret)
		require.Equal(t, http.StatusOK, status)
		require.Zero(t, took)
		time.Sleep(slowBy)
		count := map[int]int{}
		for range 40 {
			count[<-statuses]++
		}
		require.Equal(t, map[int]int{http.StatusUnauthorized: mostHeld, http.StatusTooManyRequests: 40 - mostHeld}, count)

		// A wrong token in Authorization is an attempt, too, also where this machine may look.
		w, took := asked(h, cameIn("127.0.0.1:7072", "Authorization", "Bearer "+secret+"0"))
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.Equal(t, slowBy, took)
		require.Equal(t, []string{"10.0.0.9 1"}, told)
		time.Sleep(toldEvery)
		attempt("y")
		require.Equal(t, []string{"10.0.0.9 1", "10.0.0.9 42"}, told)

		v := look(t, h, "")
		synctest.Wait()
		shown := v.state(t)["wrongTokens"].(document)
		require.Equal(t, float64(42), shown["count"])
		require.Equal(t, "10.0.0.9", shown["client"])
		v.leave()
		time.Sleep(linger + every)
	})
}

// TestCookie: over https the cookie is one that no other host can set, and who locks the page takes every copy of it back.
func TestCookie(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		fields []string
		secure bool
	}{
		"http":                     {},
		"https, says somebody":     {fields: []string{"X-Forwarded-Proto", "https"}},
		"https, says a proxy":      {config: Config{TrustProxy: true}, fields: []string{"X-Forwarded-Proto", "https"}, secure: true},
		"http, says the proxy":     {config: Config{TrustProxy: true}, fields: []string{"X-Forwarded-Proto", "http"}},
		"https, the program's own": {fields: []string{"TLS", ""}, secure: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Source, c.config.Token = &fixed{}, secret
			h, err := New(c.config)
			require.NoError(t, err)
			request := func(path string) *http.Request {
				r := cameIn("10.0.0.7:443", append(c.fields, "Content-Type", "application/json")...)
				r.Method, r.URL.Path = http.MethodPost, path
				r.Body = io.NopCloser(strings.NewReader(`{"token":"` + secret + `"}`))
				if slices.Contains(c.fields, "TLS") {
					r.TLS = new(tls.ConnectionState)
				}
				return r
			}

			w, _ := asked(h, request("/token"))
			cookie := w.Result().Cookies()[0]
			require.Equal(t, c.secure, cookie.Secure)
			require.Equal(t, c.secure, cookie.Name == "__Host-throttle-dashboard" && cookie.Path == "/")
			can := func() bool {
				r := request("/access")
				r.AddCookie(cookie)
				return h.guard.accessOf(r).Act
			}
			require.True(t, can())

			r := request("/forget")
			r.AddCookie(cookie)
			asked(h, r)
			require.False(t, can(), "a copy of the cookie")
			w, _ = asked(h, request("/token"))
			cookie = w.Result().Cookies()[0]
			require.True(t, can(), "another one")
		})
	}
}

// TestRevokedIsBounded: proofs that are over need not be remembered.
func TestRevokedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newHandler(t, Config{Token: secret}).guard
		for range mostRevoked + 10 {
			r := cameIn("127.0.0.1:7072")
			r.AddCookie(&http.Cookie{Name: cookieName, Value: g.token.proof(time.Now().Add(cookieLasts))})
			g.revoke(r)
			time.Sleep(cookieLasts / mostRevoked * 2)
		}
		require.LessOrEqual(t, len(g.revoked), mostRevoked)
	})
}

// TestSlowBody: a client that sends a body by and by holds a connection for ten seconds, also where no body is read.
func TestSlowBody(t *testing.T) {
	const body = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	for _, request := range []string{
		"POST /token", "POST /forget", "POST /pause", "POST /find", "POST /none", "GET /", "GET /page.js", "GET /access", "GET /events", "GET /history",
		"POST /token of another origin", "POST /pause with the token", "POST /find with the token", "POST /token with a wrong token", "POST /token with more than one order",
	} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target, with, _ := strings.Cut(request, " with ")
				target, _, foreign := strings.Cut(target, " of another origin")
				head := target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
				switch {
				case foreign:
					head += "Origin: http://else.example.com\r\n"
				case with == "the token":
					head += "Authorization: Bearer " + secret + "\r\n"
				case with == "a wrong token":
					head += "Authorization: Bearer wrong\r\n"
				}
				text := head + body
				if with == "more than one order" {
					text += "}{"
				}

				took, err := bubble.Send(newHandler(t, Config{Token: secret}), text)
				require.NoError(t, err)
				require.LessOrEqual(t, took, bodyTime+slowBy+time.Second)
			})
		})
	}
}

// TestLetIn: a server learns which connections are those of viewers.
func TestLetIn(t *testing.T) {
	var let []string
	h := newHandler(t, Config{Token: secret, LetIn: func(r *http.Request) { let = append(let, r.URL.Path) }})
	for _, token := range []string{"", secret} {
		for _, path := range []string{"/", "/access", "/history", "/why"} {
			r := cameIn("192.0.2.1:7072")
			r.URL.Path = path
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	require.Equal(t, []string{"/history", "/why"}, let)
}

// TestFind: a key that a viewer types finds its budgets by the hash, and is in no answer.
func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		l := newLimiters(t, p, throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerSecond(3)}, throttle.Policy{Name: "mail", Keyed: true, Limit: throttle.PerSecond(5)})
		for _, d := range []throttle.Demand{{Policy: "shop", Key: "acme"}, {Policy: "shop", Key: "other"}, {Policy: "mail", Key: "acme"}} {
			_, err := l.Acquire(t.Context(), d)
			require.NoError(t, err)
		}
		h := newHandler(t, Config{Source: p})
		v := look(t, h, "")
		synctest.Wait()

		ask := func(key string) (int, string) {
			r := cameIn("127.0.0.1:7072", "Content-Type", "application/json")
			r.Method, r.URL.Path, r.Body = http.MethodPost, "/find", io.NopCloser(strings.NewReader(`{"key":"`+key+`"}`))
			w, _ := asked(h, r)
			return w.Code, w.Body.String()
		}
		status, text := ask("acme")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, store.BudgetOf("shop", "acme").String())
		require.Contains(t, text, store.BudgetOf("mail", "acme").String())
		require.NotContains(t, text, store.BudgetOf("shop", "other").String())
		require.NotContains(t, text, "acme")
		_, text = ask("nobody")
		require.JSONEq(t, `{"budgets":[]}`, text)
		status, _ = ask("")
		require.Equal(t, http.StatusUnprocessableEntity, status)
		v.leave()
		time.Sleep(linger + every)
	})
}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// fixed is a source that says what it is told to.
type fixed struct {
	mu    sync.Mutex
	reads int
	next  func(n int) (*reading, error) // of the n-th reading; nil: nothing is there
	acts  []string
	err   error // of acts
}

func (f *fixed) reader(int) reader { return f }

func (f *fixed) read(context.Context, bool) (*reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.next == nil {
		return &reading{At: time.Now(), Kind: kindProcess}, nil
	}
	return f.next(f.reads)
}

func (f *fixed) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fixed) pause(_ context.Context, budget string, d time.Duration, by, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, "pause "+budget+" "+d.String()+" "+by+": "+reason)
	return f.err
}

func (f *fixed) resume(_ context.Context, budget, by, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, "resume "+budget+" "+by+": "+reason)
	return f.err
}

// counting returns readings of one budget that has used as many starts as there were readings.
func counting(n int) (*reading, error) {
	return &reading{At: time.Now(), Kind: kindProcess, Budgets: []budget{{ID: "shop/1", Name: "shop/1", Policy: "shop", Limits: []string{"20/s"}, Kind: windowed, Capacity: 20, Used: n}}}, nil
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
