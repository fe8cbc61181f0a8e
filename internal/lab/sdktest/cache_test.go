package sdktest

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gregjones/httpcache"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/github"
)

// cachedGitHub is quoted by docs/use/sdks.md. The cache is outside: what it serves never reaches throttle.
// What it asks again, with If-None-Match, goes through throttle, and the preset gives back the cost of a 304.
func cachedGitHub(store throttle.Store, base http.RoundTripper) (*http.Client, *throttle.Transport) {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    store,
		Policies: github.Policies(github.Options{}),
		Base:     base, // leave it out in a program
	}))
	cache := httpcache.NewMemoryCacheTransport()
	cache.Transport = transport
	return cache.Client(), transport
}

// TestCacheOutside: an answer that is fresh costs nothing, and is not even asked for; one that is
// unchanged costs a request but nothing of the hour's quota; one that has changed costs again.
func TestCacheOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived, version := 0, 1
		upstream := roundTripper(func(r *http.Request) (*http.Response, error) {
			arrived++
			resp := &http.Response{
				StatusCode: http.StatusOK, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
				Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Cache-Control": {"private, max-age=60"}, "Etag": {fmt.Sprintf(`"%d"`, version)}},
			}
			if resp.Header.Get("Etag") == r.Header.Get("If-None-Match") {
				resp.StatusCode = http.StatusNotModified
			}
			return resp, nil
		})
		store := memstore.New()
		client, transport := cachedGitHub(store, upstream)
		request, err := http.NewRequest(http.MethodGet, "https://api.github.com/repos/a/b", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer token")
		used := func() int {
			for _, charge := range transport.Explain(request) {
				if charge.Budget.Policy == "github-primary" {
					status, err := store.Status(t.Context(), charge)
					require.NoError(t, err)
					return status.Used
				}
			}
			return -1
		}
		get := func(wantArrived, wantUsed int) {
			t.Helper()
			resp, err := client.Do(request.Clone(t.Context()))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, wantArrived, arrived)
			require.Equal(t, wantUsed, used())
		}
		get(1, 1)
		for range 100 {
			get(1, 1) // fresh
		}
		time.Sleep(2 * time.Minute)
		get(2, 1) // unchanged
		time.Sleep(2 * time.Minute)
		version++
		get(3, 2) // changed
	})
}

// A roundTripper is an upstream made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
