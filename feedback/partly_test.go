package feedback_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/feedback"
)

func TestPartly(t *testing.T) {
	for body, want := range map[string]bool{
		`{"data":{"a":{"id":1},"b":null},"errors":[{}]}`:              true,
		`{"errors":[{"data":null}],"data":{"a":1}}`:                   true,
		`{"data":{"a":"` + strings.Repeat("x", 100_000) + `"}}`:       true,
		`{"data":null,"errors":[{"extensions":{"data":1}}]}`:          false,
		`{"errors":[{"message":"no"}]}`:                               false,
		`{"errors":["` + strings.Repeat("x", 100_000) + `"],"data":1`: false,
		`{"data":`: false,
		`{"data"`:  false,
		`{`:        false,
		`[]`:       false,
		`data`:     false,
		``:         false,
	} {
		resp := jsonAnswer(200, body)
		require.Equal(t, want, feedback.Partly(resp), "%.60s", body)
		requireBody(t, body, resp)
	}
}

func TestSucceeded(t *testing.T) {
	for status, want := range map[int]bool{200: true, 204: true, 304: true, 400: false, 429: false, 503: false} {
		require.Equal(t, want, feedback.Succeeded(answer(status, "")), "%d", status)
	}
}
