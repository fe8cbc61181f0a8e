package riot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/riot"
)

type header = presettest.Header

const body = `{"status":{"message":"Rate limit exceeded","status_code":429}}`

func TestRefusals(t *testing.T) {
	presettest.Run(t, riot.Policies(riot.Options{}), presettest.Case{Request: league, Status: 429}, []presettest.Case{
		{Name: "application", Answers: body, Header: header{"X-Rate-Limit-Type": "application", "Retry-After": "58"},
			Closes: "riot-app-1s 58s, riot-app-120s 58s"},
		{Name: "method", Answers: body, Header: header{"X-Rate-Limit-Type": "method", "Retry-After": "10"}, Closes: "riot-method 10s"},
		{Name: "service", Answers: body, Header: header{"X-Rate-Limit-Type": "service", "Retry-After": "2"}, Closes: "riot-service 2s"},
		{Name: "the service underneath, without both headers", Answers: body, Closes: "riot-service 5s"},
		{Name: "application, nobody knows for how long", Header: header{"X-Rate-Limit-Type": "application"},
			Closes: "riot-app-1s 5s, riot-app-120s 5s"},
		{Name: "away, for a while, says one backend", Status: 503, Header: header{"Retry-After": "7"}},
	})
}

func TestNoRefusals(t *testing.T) {
	typed := header{"X-Rate-Limit-Type": "application", "Retry-After": "58"}
	presettest.Run(t, riot.Policies(riot.Options{}), presettest.Case{Request: league}, []presettest.Case{
		{Name: "an answer that quotes a refusal", Header: typed, Answers: body},
		{Name: "a key that has expired", Status: 403, Header: typed, Answers: `{"status":{"message":"Forbidden","status_code":403}}`},
		{Name: "no key", Status: 401, Header: header{"X-App-Rate-Limit": "20:1", "X-App-Rate-Limit-Count": "20:1"}},
		{Name: "no such player", Status: 404, Header: header{"Retry-After": "9"}},
		{Name: "away", Status: 503, Header: header{"Content-Type": "text/html"}, Answers: "<html>"},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, riot.Policies(riot.Options{}), presettest.Case{Request: league}, []presettest.Case{
		{Name: "of both, as the source prints it",
			Header: header{"X-App-Rate-Limit": "20:1,100:120", "X-App-Rate-Limit-Count": "3:1,57:120", "X-Method-Rate-Limit": "2000:10", "X-Method-Rate-Limit-Count": "4:10"},
			Left:   "riot-app-1s 17 1s, riot-app-120s 43 1s, riot-method 1996 1s"},
		{Name: "in another order", Header: header{"X-App-Rate-Limit": "20:1,100:120", "X-App-Rate-Limit-Count": "57:120,3:1"},
			Left: "riot-app-1s 17 1s, riot-app-120s 43 1s"},
		{Name: "of two windows of a method, the one with less",
			Header: header{"X-Method-Rate-Limit": "30:10,500:600", "X-Method-Rate-Limit-Count": "1:10,490:600"}, Left: "riot-method 10 1s"},
		{Name: "nothing", Header: header{"X-App-Rate-Limit": "100:120", "X-App-Rate-Limit-Count": "100:120"}, Left: "riot-app-120s 0 1s"},
		{Name: "of a key with other windows", Header: header{"X-App-Rate-Limit": "500:10", "X-App-Rate-Limit-Count": "1:10"}},
	})
}

func TestStreamsAreLeftAlone(t *testing.T) {
	require.Zero(t, presettest.LookedAt(t, riot.Policies(riot.Options{}), league, 429, header{"Content-Type": "application/json"}, "{"))
}
