package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// get returns an answer of the page.
func get(t *testing.T, client *http.Client, url string, fields ...string) (*http.Response, string) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// TestPage: the page and its files come with a strict policy of content, and the page loads nothing else.
func TestPage(t *testing.T) {
	url := serve(t, Config{Title: `<b>"fleet"</b>`})
	resp, text := get(t, http.DefaultClient, url)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'", resp.Header.Get("Content-Security-Policy"))
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	require.NotContains(t, text, "<b>\"fleet")
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"?#]+)"`).FindAllStringSubmatch(text, -1) {
		resp, body := get(t, http.DefaultClient, url+m[1])
		require.Equal(t, http.StatusOK, resp.StatusCode, m[1])
		require.NotEmpty(t, body)
		again, _ := get(t, http.DefaultClient, url+m[1], "If-None-Match", resp.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, again.StatusCode)
	}
	for _, path := range []string{"page.html", "nothing.js", "..%2fpage.go", "x/y"} {
		resp, _ := get(t, http.DefaultClient, url+path)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
}

// TestPageBelowAPath: the page works below any path of a program's own server.
func TestPageBelowAPath(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/throttle/", http.StripPrefix("/throttle", newHandler(t, Config{Token: secret})))
	mux.HandleFunc("/elsewhere", func(_ http.ResponseWriter, r *http.Request) {
		require.Empty(t, r.Cookies(), "the proof of the token is for the page only")
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	resp, text := get(t, http.DefaultClient, server.URL+"/throttle/")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NotRegexp(t, `(src|href)="/`, text)
	resp, _ = get(t, http.DefaultClient, server.URL+"/throttle/page.js")
	require.Equal(t, http.StatusOK, resp.StatusCode)

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	resp, err = client.Post(server.URL+"/throttle/token", "application/json", strings.NewReader(`{"token":"`+secret+`"}`))
	require.NoError(t, err)
	resp.Body.Close()
	_, text = get(t, client, server.URL+"/throttle/access")
	require.JSONEq(t, `{"read":true,"act":true,"token":true}`, text)
	get(t, client, server.URL+"/elsewhere")
}

// TestScriptsUseTextOnly: nothing in the page's scripts can make HTML of a text, and each file begins with what it is.
func TestScriptsUseTextOnly(t *testing.T) {
	all, err := fs.Glob(files, "page/*.js")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, name := range all {
		text, err := files.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(text, []byte("// ")), name)
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function`, string(text), name)
	}
}

// TestWords: each word of the page is there in both languages with the same blanks, and each is used.
func TestWords(t *testing.T) {
	var used strings.Builder
	for _, pattern := range []string{"page/*.js", "page/*.html"} {
		names, err := fs.Glob(files, pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := files.ReadFile(name)
			require.NoError(t, err)
			used.Write(text)
		}
	}
	for name := range words[english] {
		for _, l := range []language{english, chinese} {
			require.NotEmpty(t, l.word(name), name)
		}
		blanks := func(l language) []string {
			return regexp.MustCompile(`\{\w+\}`).FindAllString(l.word(name), -1)
		}
		require.ElementsMatch(t, blanks(english), blanks(chinese), name)
		if builtWords.MatchString(name) || serverWords[name] {
			continue
		}
		if !strings.Contains(used.String(), `"`+name+`"`) {
			t.Errorf("nothing says the word %q", name)
		}
	}
	for _, m := range regexp.MustCompile(`\bword\("([^"]+)"[,)]|\.Word "([^"]+)"`).FindAllStringSubmatch(used.String(), -1) {
		require.NotEmpty(t, words[english][m[1]+m[2]], m[0])
	}
}

// builtWords are words whose names scripts put together.
var builtWords = regexp.MustCompile(`^(do|source|pause|resume) `)

// serverWords are words that only the server says, and states of the stream.
var serverWords = map[string]bool{
	"no login": true, "token wanted": true, "many wrong tokens": true, "not local": true, "forwarded": true, "other host": true, "wrong token": true, "no token": true, "no name": true,
	"no reason": true, "bad length": true, "no such budget": true, "no such moment": true, "live": true, "hidden": true, "lost": true,
}

// TestLanguage: the browser's language counts, and what the viewer chose counts more.
func TestLanguage(t *testing.T) {
	for accept, want := range map[string]language{
		"": english, "zh-CN,zh;q=0.9,en;q=0.8": chinese, "en-GB,en;q=0.9,zh;q=0.8": english, "de, zh;q=0.5": chinese, "fr": english,
		"en;q=0.1, zh-Hant;q=0.2": chinese, "zh;q=x, en;q=0.1": english,
	} {
		require.Equal(t, want, preferred(accept), accept)
	}
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	url := serve(t, Config{})
	_, text := get(t, client, url, "Accept-Language", "zh")
	require.Contains(t, text, `<html lang="zh-CN">`)
	require.Contains(t, text, "操作记录")
	_, text = get(t, client, url+"?lang=en", "Accept-Language", "zh")
	require.Contains(t, text, `<html lang="en">`)
	_, text = get(t, client, url, "Accept-Language", "zh")
	require.Contains(t, text, `<html lang="en">`)
}

// TestActs: the token is typed once, an act says who and why, and a page of another site cannot act.
func TestActs(t *testing.T) {
	source := &fixed{}
	url := serve(t, Config{Source: source, Token: secret})
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	post := func(path string, body any, fields ...string) (int, string) {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		r, err := http.NewRequest(http.MethodPost, url+path, bytes.NewReader(text))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		resp, err := client.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if path == "token" && resp.StatusCode == http.StatusOK {
			c := resp.Cookies()[0]
			require.True(t, c.HttpOnly)
			require.Equal(t, http.SameSiteStrictMode, c.SameSite)
			require.NotContains(t, c.Value, secret)
		}
		return resp.StatusCode, string(answer)
	}
	pause := order{Budget: "shop/1", For: 60_000, By: " ann\x1b ", Reason: "moves"}
	status, _ := post("pause", pause)
	require.Equal(t, http.StatusUnauthorized, status)
	status, answer := post("token", order{Token: "wrong"})
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, answer, "That is not the token.")
	status, answer = post("token", order{Token: secret})
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"read":true,"act":true,"token":true}`, answer)

	for _, elsewhere := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example.com"}} {
		status, _ = post("pause", pause, elsewhere...)
		require.Equal(t, http.StatusForbidden, status)
	}
	status, _ = post("pause", pause, "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, status)
	for want, o := range map[string]order{
		"Say who you are.": {Budget: "shop/1", For: 1000, Reason: "x"},
		"Say why.":         {Budget: "shop/1", For: 1000, By: "ann", Reason: "  "},
		"A pause from the page lasts at most six hours": {Budget: "shop/1", For: 21_600_001, By: "ann", Reason: "x"},
	} {
		status, answer = post("pause", o)
		require.Equal(t, http.StatusUnprocessableEntity, status)
		require.Contains(t, answer, want)
	}
	require.Empty(t, source.acts)

	status, _ = post("pause", pause)
	require.Equal(t, http.StatusNoContent, status)
	status, _ = post("resume", order{Budget: "shop/1", By: "bob", Reason: "moved"})
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, []string{`pause shop/1 1m0s ann\x1b: moves`, "resume shop/1 bob: moved"}, source.acts)
	source.err = errors.New("no \x1b room")
	status, answer = post("pause", pause)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, answer, `no \\x1b room`)

	status, _ = post("forget", order{})
	require.Equal(t, http.StatusNoContent, status)
	status, _ = post("pause", pause)
	require.Equal(t, http.StatusUnauthorized, status)
}

// TestNoTokenNoActs: without a token nobody can act, whatever they send.
func TestNoTokenNoActs(t *testing.T) {
	source := &fixed{}
	url := serve(t, Config{Source: source})
	for _, path := range []string{"token", "pause", "resume"} {
		resp, err := http.Post(url+path, "application/json", strings.NewReader(`{"token":"","budget":"shop/1","for":1000,"by":"ann","reason":"x"}`))
		require.NoError(t, err)
		resp.Body.Close()
		require.GreaterOrEqual(t, resp.StatusCode, 400, path)
	}
	require.Empty(t, source.acts)
}

// TestLocked: who may not look gets the page, which says why, and nothing else.
func TestLocked(t *testing.T) {
	url := serve(t, Config{Token: secret})
	_, text := get(t, http.DefaultClient, url, "X-Forwarded-For", "127.0.0.1")
	require.Contains(t, text, "through a proxy")
	for _, path := range []string{"events", "history?budget=x", "why?budget=x&at=1"} {
		resp, text := get(t, http.DefaultClient, url+path, "X-Forwarded-For", "127.0.0.1")
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
		require.Contains(t, text, "through a proxy")
	}
}

// TestLoginIsTheAuthor: behind a login, an act is of whom the login names, whatever the page says.
func TestLoginIsTheAuthor(t *testing.T) {
	source := &fixed{}
	url := serve(t, Config{Source: source, Token: secret, Login: known})
	r, err := http.NewRequest(http.MethodPost, url+"resume", strings.NewReader(`{"budget":"shop/1","by":"eve","reason":"moved"}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("X-User", "ann")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.Equal(t, []string{"resume shop/1 ann: moved"}, source.acts)
}

// TestOneProcessManyPages: one Process on several pages, each with several viewers, while the program goes on.
// The race detector sees what the pages share; each page shows the same rate, and each knows of a closing that is over.
func TestOneProcessManyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		l := newLimiters(t, p, throttle.Policy{Name: "shop", Limit: throttle.PerSecond(100)})

		var pages []*viewer
		for i := range 4 {
			h := newHandler(t, Config{Source: p, Token: secret, Budgets: 1 + i})
			for range 3 {
				pages = append(pages, look(t, h, ""))
			}
			if i%2 == 1 {
				time.Sleep(every / 7) // the first two pages read at one moment, the others at another one
			}
		}

		// 20 starts a second; for two seconds of the thirty the budget is closed.
		begun := time.Now()
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(2*time.Second)))
		time.Sleep(10 * time.Second)
		for range 20 * 20 {
			_, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
			require.NoError(t, err)
			time.Sleep(time.Second / 20)
		}

		synctest.Wait()
		id := store.BudgetOf("shop", "").String()
		for _, v := range pages {
			b := v.state(t)["budgets"].(document)[id].(document)
			require.InDelta(t, 20, b["starts"], 1.1)
			require.Len(t, b["bands"], 1)
			require.Equal(t, float64(begun.UnixMilli()), b["bands"].([]any)[0].(document)["from"])
			v.leave()
		}
		time.Sleep(linger + every)
	})
}

// TestClosedBeforeAnyPage: each page that is opened later knows when a budget was closed in the last 24 hours, not only the first one.
func TestClosedBeforeAnyPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess(memstore.New())
		l := newLimiters(t, p, shop)
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shop"})
		require.NoError(t, err)
		require.NoError(t, permit.Tell(t.Context(), throttle.Refused(20*time.Second)))
		time.Sleep(time.Minute)

		id := store.BudgetOf("shop", "").String()
		for range 3 {
			require.Len(t, readOnce(t, p.reader(DefaultBudgets)).Closed[id], 1)
		}
		time.Sleep(24 * time.Hour)
		require.Empty(t, readOnce(t, p.reader(DefaultBudgets)).Closed)
	})
}

// TestOneFleetManyPages: one Fleet on several pages that are read at the same time. Each shows as many budgets as it is asked for.
func TestOneFleetManyPages(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	startProgram(t, client, throttle.Policy{Name: "shop", Match: "api.example.com/", Limit: throttle.PerHour(30)}, "a", "b", "c", "d")
	all := must(fleet.New(client, fleet.Options{}))
	require.Eventually(t, func() bool { // the program has reported
		s, err := all.Snapshot(t.Context(), 0)
		require.NoError(t, err)
		return len(s.Budgets) == 4
	}, time.Minute, time.Millisecond)

	source := Fleet(all)
	var ended sync.WaitGroup
	for most := 1; most <= 4; most++ {
		ended.Go(func() {
			page := source.reader(most)
			for n := range 20 {
				r, err := page.read(t.Context(), n%7 == 3)
				require.NoError(t, err)
				require.Len(t, r.Budgets, most)
			}
		})
	}
	ended.Wait()
}

// merge applies a merge patch (RFC 7396), as the page does.
func merge(target, patch any) any {
	p, isObject := patch.(document)
	if !isObject {
		return patch
	}
	all, isObject := target.(document)
	if !isObject {
		all = document{}
	}
	for name, value := range p {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = merge(all[name], value)
		}
	}
	return all
}

// randomDocument returns a document without null.
func randomDocument(r *rand.Rand, depth int) document {
	d := make(document)
	for range r.IntN(5) {
		name := fmt.Sprint("n", r.IntN(4))
		switch k := r.IntN(5); {
		case k == 0 && depth > 0:
			d[name] = randomDocument(r, depth-1)
		case k == 1:
			d[name] = []any{float64(r.IntN(2)), "x"}
		default:
			d[name] = float64(r.IntN(3))
		}
	}
	return d
}

// TestDifference: the patch makes one document of another, and is empty only if they are equal.
func TestDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3_000 {
		from, to := randomDocument(r, 3), randomDocument(r, 3)
		patch := difference(from, to)
		require.Equal(t, fmt.Sprint(from) == fmt.Sprint(to), len(patch) == 0, "%v %v", from, to)
		require.Equal(t, any(to), merge(from, patch))
	}
	require.Empty(t, difference(nil, document{}))
}

// TestBands: readings that find a budget closed make one band of it, which begins anew when somebody else closes it, and
// ends when it opens.
func TestBands(t *testing.T) {
	begun := time.UnixMilli(1_000_000)
	all := make(bands)
	see := func(after time.Duration, until time.Duration, by string) []band {
		b := budget{ID: "shop", By: by}
		if until > 0 {
			b.Until = begun.Add(until).UnixMilli()
		}
		r := &reading{At: begun.Add(after), Budgets: []budget{b}}
		all.add(r, func(string) bool { return true })
		return r.Budgets[0].Bands
	}
	s := func(n int64) int64 { return 1_000_000 + n*1000 }
	require.Empty(t, see(0, 0, ""))
	require.Equal(t, []band{{From: s(1), Until: s(60)}}, see(time.Second, time.Minute, ""))
	require.Equal(t, []band{{From: s(1), Until: s(60)}}, see(2*time.Second, time.Minute+300*time.Millisecond, ""), "an end that has hardly moved stays")
	require.Equal(t, []band{{From: s(1), Until: s(90)}}, see(3*time.Second, 90*time.Second, ""), "a ban is met again")
	require.Equal(t, []band{{From: s(1), Until: s(5)}, {From: s(5), Until: s(100), By: "ann"}}, see(5*time.Second, 100*time.Second, "ann"))
	require.Equal(t, []band{{From: s(1), Until: s(5)}, {From: s(5), Until: s(9), By: "ann"}}, see(9*time.Second, 0, ""))
	require.Empty(t, see(25*time.Hour, 0, ""))
}

// TestBandBefore: of a budget that is closed when somebody begins to look, only the source may know since when.
func TestBandBefore(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	never := func(string) bool { return false }
	r := &reading{At: now, Budgets: []budget{{ID: "ban", Until: 2_000_000}, {ID: "pause", Until: 2_000_000, Since: 900_000}}}
	make(bands).add(r, never)
	require.Equal(t, []band{{From: 1_000_000, Before: true, Until: 2_000_000}}, r.Budgets[0].Bands)
	require.Equal(t, []band{{From: 900_000, Until: 2_000_000}}, r.Budgets[1].Bands)
}

// TestClosedByActs: pauses that nobody watched are known by the audit.
func TestClosedByActs(t *testing.T) {
	now := time.UnixMilli(10_000_000)
	at := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	acts := []act{ // the newest first
		{At: at(time.Minute), Act: "pause", What: "open", By: "bob", For: (5 * time.Minute).Milliseconds()},
		{At: at(20 * time.Minute), Act: "resume", What: "shop", By: "bob"},
		{At: at(25 * time.Minute), Act: "pause", What: "shop", By: "ann", Reason: "moves", For: time.Hour.Milliseconds()},
		{At: at(26 * time.Minute), Act: "pause", What: "shop", By: "eve", For: time.Hour.Milliseconds(), Failed: true},
	}
	closed, begun := closedByActs(acts, now)
	require.Equal(t, map[string]int64{"open": at(time.Minute)}, begun)
	require.Equal(t, []band{{From: at(25 * time.Minute), Until: at(20 * time.Minute), By: "ann", Reason: "moves"}}, closed["shop"])
	require.Empty(t, closed["open"], "readings meet it")
}
