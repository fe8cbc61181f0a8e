package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
)

// inMemory sends requests to a handler without a network.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, req)
	return w.Result(), nil
}

// TestTutorial: in virtual time the callers of the tutorial keep the limit of its API, processes without a common store do not,
// and a request that would wait too long is not sent.
func TestTutorial(t *testing.T) {
	for _, c := range []struct {
		name       string
		stores     int
		url        string
		n          int
		maxWait    time.Duration
		refuses    bool
		done, seen string
	}{
		{"one", 1, "http://localhost:8080/", 60, 0, false, "60 answered, 0 refused, 0 not sent,", "20 arrived, 0 refused"},
		{"two stores", 2, "http://localhost:8080/", 60, 0, true, " refused, 0 not sent,", " arrived, "},
		{"refused", 1, "http://localhost:8080/refuse", 1, 0, true, "0 answered, 1 refused, 0 not sent,", "1 arrived, 1 refused"},
		{"too long", 1, "http://localhost:8080/", 60, 200 * time.Millisecond, false, "20 answered, 0 refused, 40 not sent,", "20 arrived, 0 refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				api := newAPI(&out)
				ends := make(chan string, c.stores)
				for range c.stores {
					transport, err := newTransport(memstore.New(), c.maxWait, inMemory{api})
					require.NoError(t, err)
					go func() { ends <- call(&http.Client{Transport: transport}, c.url, c.n).String() }()
				}

				done := ""
				for range c.stores {
					done += <-ends
				}
				require.Contains(t, done, c.done)
				require.Equal(t, c.refuses, strings.Count(done, " 0 refused,") < c.stores, done)
				time.Sleep(time.Second) // until the API has reported
				synctest.Wait()
				require.Contains(t, out.String(), c.seen)
			})
		})
	}
}
