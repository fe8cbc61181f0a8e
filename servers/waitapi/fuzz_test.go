package waitapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// FuzzAcquire: whatever a caller sends has an answer, and what is taken is what the fields mean to
// encoding/json.
func FuzzAcquire(f *testing.F) {
	f.Add(want("p"), "k", "wait=1")
	f.Add(`{"demands": [{"policy": "p", "key": "k", "cost": 2}, {"policy": "p", "free": true}], "wait": 1e-3, "priority": "low", "lifetime": 0.5}`, `"k"`, "")
	f.Add(`{"demands": [{"policy": "p", "Cost": 1}], "demands": [], "a~/b": {"c": [1, null]}}`, `"`, ",;=")
	f.Add(`{"demands": [{"policy": "p", "cost": 1.0}], "wait": 1e99}{}`, "", "wait=\"9\"")
	f.Fuzz(func(t *testing.T, body, key, prefer string) {
		limiters := newLimiters(t, memstore.New(), "p: 5/h")
		h, err := waitapi.New(waitapi.Config{Limiters: limiters, MaxWait: -1})
		require.NoError(t, err)
		s := &scene{T: t, h: h, limiters: limiters}
		w := httptest.NewRecorder()
		r := s.request(t.Context(), "acquire", body)
		r.Header["Idempotency-Key"], r.Header["Prefer"] = []string{key}, []string{prefer}
		require.False(t, s.serve(w, r))
		require.NoError(t, h.Close(t.Context()))
		require.Contains(t, []int{200, 400, 413, 429}, w.Code)
		require.True(t, json.Valid(w.Body.Bytes()))
		if w.Code != 200 && w.Code != 429 {
			require.Zero(t, s.used("p", ""))
			return
		}
		var meant struct {
			Demands []struct {
				Policy, Key string
				Cost        int
				Free        bool
			}
			Wait, Lifetime float64
			Priority       string
		}
		d := json.NewDecoder(bytes.NewReader([]byte(body)))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&meant))
		_, err = d.Token()
		require.ErrorIs(t, err, io.EOF)
		cost := 0
		for _, demand := range meant.Demands {
			require.Equal(t, "p", demand.Policy)
			if demand.Key == "" && !demand.Free {
				cost += max(1, demand.Cost)
			}
		}
		if w.Code == 200 {
			require.Equal(t, cost, s.used("p", ""))
		}
	})
}
