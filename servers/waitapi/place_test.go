package waitapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// TestPlace: a caller that asks for it is answered at once that it shall come again, and has its permit then.
func TestPlace(t *testing.T) {
	for name, ask := range map[string]struct{ body, header string }{
		"in the body": {`{"demands": [{"policy": "p"}], "wait": 2, "place": ""}`, "Accept: */*"},
		"preferred":   {`{"demands": [{"policy": "p"}]}`, "Prefer: respond-async, wait=2"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, "p: 6/min", func(s *scene) {
				for range 6 {
					require.Equal(s, http.StatusOK, s.post(s.Context(), "acquire", ask.body, ask.header).Code, "there is room")
				}
				asked := time.Now()
				a := s.post(s.Context(), "acquire", ask.body, ask.header)
				require.Equal(s, http.StatusAccepted, a.Code, a.Text)
				require.Zero(s, time.Since(asked))
				require.NotEmpty(s, a.Place)
				require.InDelta(s, 59, a.RetryAfter, 1.1)
				after, err := strconv.Atoi(a.Get("Retry-After"))
				require.NoError(s, err)
				require.InDelta(s, a.RetryAfter, after, 1)

				redeem := fmt.Sprintf(`{"demands": [{"policy": "p"}], "wait": 2, "place": %q}`, a.Place)
				early := s.post(s.Context(), "acquire", redeem)
				require.Equal(s, http.StatusAccepted, early.Code)
				require.InDelta(s, a.RetryAfter, early.RetryAfter, 1, "it keeps its appointment")
				time.Sleep(time.Duration(a.RetryAfter * float64(time.Second)))
				b := s.post(s.Context(), "acquire", redeem)
				require.Equal(s, http.StatusOK, b.Code, b.Text)
				require.NotEmpty(s, b.Permit)
				gone := s.post(s.Context(), "acquire", redeem)
				require.Equal(s, http.StatusGone, gone.Code)
				require.Contains(s, gone.Detail, "redeemed")
			})
		})
	}
}

// TestPlaceMistakes of the text, and places for something else.
func TestPlaceMistakes(t *testing.T) {
	play(t, nil, "p: 1/h, q: 1/h", func(s *scene) {
		ask := func(demands, place string) answer {
			return s.post(s.Context(), "acquire", fmt.Sprintf(`{"demands": [%s], "wait": 2, "place": %q}`, demands, place))
		}
		require.Equal(s, http.StatusOK, ask(`{"policy": "p"}`, "").Code)
		a := ask(`{"policy": "p"}`, "")
		require.Equal(s, http.StatusAccepted, a.Code)
		other := ask(`{"policy": "q"}`, a.Place)
		require.Equal(s, http.StatusBadRequest, other.Code)
		require.Contains(s, other.Detail, "other budgets")
		wrong := ask(`{"policy": "p"}`, a.Place[1:])
		require.Equal(s, http.StatusBadRequest, wrong.Code)
		require.Equal(s, "#/place", wrong.Errors[0].Pointer)
		require.Equal(s, http.StatusBadRequest, s.post(s.Context(), "acquire", `{"demands": [{"policy": "p"}], "place": 1}`).Code)
		time.Sleep(60 * 24 * time.Hour)
		require.Equal(s, http.StatusGone, ask(`{"policy": "p"}`, a.Place).Code)
	})
}

// TestPlaceOfACallerThatLeft: its start is given back, and the place is as good as before.
func TestPlaceOfACallerThatLeft(t *testing.T) {
	play(t, nil, "p: 1/min", func(s *scene) {
		body := `{"demands": [{"policy": "p"}], "wait": 2, "place": %q}`
		require.Equal(s, http.StatusOK, s.post(s.Context(), "acquire", fmt.Sprintf(body, "")).Code)
		a := s.post(s.Context(), "acquire", fmt.Sprintf(body, ""))
		require.Equal(s, http.StatusAccepted, a.Code)
		time.Sleep(time.Duration(a.RetryAfter * float64(time.Second)))
		s.serve(brokenWriter{httptest.NewRecorder()}, s.request(s.Context(), "acquire", fmt.Sprintf(body, a.Place)))
		require.Zero(s, s.used("p", ""), "its start is given back")
		require.Equal(s, http.StatusOK, s.post(s.Context(), "acquire", fmt.Sprintf(body, a.Place)).Code)
	})
}

// TestPlaceInAnotherProcess of the fleet, here with the same store.
func TestPlaceInAnotherProcess(t *testing.T) {
	play(t, nil, "p: 1/min", func(s *scene) {
		store := memstore.New()
		var all []*scene
		for range 2 {
			h, err := waitapi.New(waitapi.Config{Limiters: newLimiters(s.T, store, "p: 1/min")})
			require.NoError(s, err)
			defer h.Close(s.Context())
			all = append(all, &scene{T: s.T, h: h})
		}
		body := `{"demands": [{"policy": "p"}], "place": %q}`
		require.Equal(s, http.StatusOK, all[0].post(s.Context(), "acquire", fmt.Sprintf(body, "")).Code)
		a := all[0].post(s.Context(), "acquire", fmt.Sprintf(body, ""))
		require.Equal(s, http.StatusAccepted, a.Code)
		time.Sleep(time.Duration(a.RetryAfter * float64(time.Second)))
		require.Equal(s, http.StatusOK, all[1].post(s.Context(), "acquire", fmt.Sprintf(body, a.Place)).Code)
	})
}
