package riot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/riot"
)

type (
	header = presettest.Header
	closes = map[string]time.Duration
	quotas = map[string]throttle.Quota
)

const body = `{"status":{"message":"Rate limit exceeded","status_code":429}}`

func TestRefusals(t *testing.T) {
	presettest.Run(t, riot.Policies(riot.Options{}), []presettest.Case{
		{
			Name: "application", Request: league, Status: 429, Answers: body,
			Header: header{"X-Rate-Limit-Type": "application", "Retry-After": "58"},
			Closes: closes{"riot-app-1s": 58 * time.Second, "riot-app-120s": 58 * time.Second},
		},
		{
			Name: "method", Request: league, Status: 429, Answers: body,
			Header: header{"X-Rate-Limit-Type": "method", "Retry-After": "10"},
			Closes: closes{"riot-method": 10 * time.Second},
		},
		{
			Name: "service", Request: league, Status: 429, Answers: body,
			Header: header{"X-Rate-Limit-Type": "service", "Retry-After": "2"},
			Closes: closes{"riot-service": 2 * time.Second},
		},
		{
			Name: "the service underneath, without both headers", Request: league, Status: 429, Answers: body,
			Closes: closes{"riot-service": 5 * time.Second},
		},
		{
			Name: "application, nobody knows for how long", Request: league, Status: 429,
			Header: header{"X-Rate-Limit-Type": "application"},
			Closes: closes{"riot-app-1s": 5 * time.Second, "riot-app-120s": 5 * time.Second},
		},
		{
			Name: "away, for a while, says one backend", Request: league, Status: 503, Header: header{"Retry-After": "7"},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	typed := header{"X-Rate-Limit-Type": "application", "Retry-After": "58"}
	presettest.Run(t, riot.Policies(riot.Options{}), []presettest.Case{
		{Name: "an answer that quotes a refusal", Request: league, Header: typed, Answers: body},
		{
			Name: "a key that has expired", Request: league, Status: 403, Header: typed,
			Answers: `{"status":{"message":"Forbidden","status_code":403}}`,
		},
		{
			Name: "no key", Request: league, Status: 401,
			Header: header{"X-App-Rate-Limit": "20:1", "X-App-Rate-Limit-Count": "20:1"},
		},
		{Name: "no such player", Request: league, Status: 404, Header: header{"Retry-After": "9"}},
		{Name: "away", Request: league, Status: 503, Header: header{"Content-Type": "text/html"}, Answers: "<html>"},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, riot.Policies(riot.Options{}), []presettest.Case{
		{
			Name: "of both, as the source prints it", Request: league,
			Header: header{
				"X-App-Rate-Limit": "20:1,100:120", "X-App-Rate-Limit-Count": "3:1,57:120",
				"X-Method-Rate-Limit": "2000:10", "X-Method-Rate-Limit-Count": "4:10",
			},
			Left: quotas{
				"riot-app-1s":   {Left: 17, Reset: time.Second},
				"riot-app-120s": {Left: 43, Reset: time.Second},
				"riot-method":   {Left: 1996, Reset: time.Second},
			},
		},
		{
			Name: "in another order", Request: league,
			Header: header{"X-App-Rate-Limit": "20:1,100:120", "X-App-Rate-Limit-Count": "57:120,3:1"},
			Left: quotas{
				"riot-app-1s":   {Left: 17, Reset: time.Second},
				"riot-app-120s": {Left: 43, Reset: time.Second},
			},
		},
		{
			Name: "of two windows of a method, the one with less", Request: league,
			Header: header{"X-Method-Rate-Limit": "30:10,500:600", "X-Method-Rate-Limit-Count": "1:10,490:600"},
			Left:   quotas{"riot-method": {Left: 10, Reset: time.Second}},
		},
		{
			Name: "nothing", Request: league,
			Header: header{"X-App-Rate-Limit": "100:120", "X-App-Rate-Limit-Count": "100:120"},
			Left:   quotas{"riot-app-120s": {Left: 0, Reset: time.Second}},
		},
		{
			Name: "of a key with other windows", Request: league,
			Header: header{"X-App-Rate-Limit": "500:10", "X-App-Rate-Limit-Count": "1:10"},
		},
	})
}

func TestStreamsAreLeftAlone(t *testing.T) {
	r := presettest.Request(t, league, nil)
	require.Zero(t, presettest.LookedAt(t, riot.Policies(riot.Options{}), r, 429, header{"Content-Type": "application/json"}, "{"))
}
