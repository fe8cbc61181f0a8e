package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
