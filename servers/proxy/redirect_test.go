package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// redirects is a scene with an API that redirects to another one, which tells what it has got in X-Got.
func redirects(t *testing.T) *scene {
	return newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "a.wide.example.com":
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "of-a"})
			http.Redirect(w, r, "https://api.example.com/v1/up", http.StatusTemporaryRedirect)
		case r.URL.Path == "/v1/on":
			w.Header().Set("Link", "</v1/2>; rel=next, <https://api.example.com/v1/3>; rel=last")
			http.Redirect(w, r, "https://odd.example.com:8443/x", http.StatusTemporaryRedirect)
		default:
			w.Header().Set("X-Got", fmt.Sprintf("%q %q", r.Header.Get("Authorization"), r.Header.Get("Cookie")))
			fmt.Fprint(w, "at ", r.Host, r.URL)
		}
	}, nil, rows...)
}

// TestP14_RedirectCarriesNoCredential: a client that follows a redirect from one API to another one is held there, and
// brings neither the Authorization nor the cookies of the first.
func TestP14_RedirectCarriesNoCredential(t *testing.T) {
	s := redirects(t)
	_, port, _ := strings.Cut(s.address, ":")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)

	for _, name := range []string{"127.0.0.1", "localhost"} {
		begin := "http://" + name + ":" + port + "/a.wide.example.com/x"

		req, err := http.NewRequest(http.MethodGet, begin, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", secret)
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Jar: jar}
		resp, err := c.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, "at api.example.com/v1/up", string(text), "by the proxy")
		require.Equal(t, `"" ""`, resp.Header.Get("X-Got"))
		require.NotEmpty(t, resp.Header.Get("Server-Timing"))
		jar, err = cookiejar.New(nil)
		require.NoError(t, err)
	}
}

// TestP14_ChainOfRedirects: the second redirect of a chain does not lead back to the origin of the first API. Clients such
// as curl would send the credential of the first API to the third.
func TestP14_ChainOfRedirects(t *testing.T) {
	s := redirects(t)
	for name, other := range map[string]string{"127.0.0.1": "localhost", "localhost": "127.0.0.1"} {
		first, _ := s.get("/a.wide.example.com/x", "Host: "+name+":7070")
		second := first.Header.Get("Location")
		require.Equal(t, "http://"+other+":7070/-/api.example.com/v1/up", second)

		on, _ := s.get("/-/api.example.com/v1/on", "Host: "+other+":7070")
		third := on.Header.Get("Location")
		require.Equal(t, "http://"+other+":7070/-/odd.example.com:8443/x", third)
		require.Equal(t, "</-/api.example.com/v1/2>; rel=next, <http://"+other+":7070/-/api.example.com/v1/3>; rel=last", on.Header.Get("Link"))

		resp, _ := s.get("/-/odd.example.com:8443/x", "Host: "+other+":7070")
		require.NotEmpty(t, resp.Header.Get("Server-Timing"), "by the proxy")
	}

	resp, _ := s.get("/-/api.example.com/v1/on", "Host: 127.0.0.2:7070")
	require.Equal(t, "https://odd.example.com:8443/x", resp.Header.Get("Location"), "an address without a second name")
	for _, path := range []string{"/-", "/-/", "/-/-/api.example.com/v1/", "/-/else.example.com/"} {
		resp, _ := s.get(path)
		require.GreaterOrEqual(t, resp.StatusCode, 400, path)
	}
}

// TestRedirectByProxy: with HTTP_PROXY a link of https to another API stays one of https, and is told; one of http comes to the
// proxy as it is.
func TestRedirectByProxy(t *testing.T) {
	s := redirects(t)
	proxied, err := url.Parse("http://" + s.address)
	require.NoError(t, err)
	c := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyURL(proxied), DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	resp, err := c.Get("http://a.wide.example.com/x")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "https://api.example.com/v1/up", resp.Header.Get("Location"))
	require.EqualValues(t, 1, s.handler.Stats().LinksRound)
}

// TestRedirectElsewhere: where the proxy has no second name, the link stays as the API has sent it.
func TestRedirectElsewhere(t *testing.T) {
	s := redirects(t)
	for _, host := range []string{"127.0.0.2:7070", "a.wide.example.com"} {
		target := "/a.wide.example.com/x"
		if host == "a.wide.example.com" {
			target = "/x"
		}
		resp, _ := s.ask("GET", target+" HTTP/1.1\nHost: "+host+"\n\n")
		require.Equal(t, "https://api.example.com/v1/up", resp.Header.Get("Location"), host)
	}
}
