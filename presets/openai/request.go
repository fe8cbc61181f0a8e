package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle/presets/internal/reqbody"
)

// asks yields the members of the JSON object in a request's body that are no objects
// and no arrays. It reads a copy: the body itself is the base's.
func asks(r *http.Request, yield func(name string, value []byte) bool) {
	if !isJSON(r) {
		return
	}
	reqbody.Look(r, func(body io.Reader) {
		members(body, func(name, value []byte) bool { return yield(string(name), value) })
	})
}

func isJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// model is the default of [Options.Model]; "" if the body does not say. It may stand
// behind the messages, and SDKs put it there.
func model(r *http.Request) (name string) {
	asks(r, func(field string, value []byte) bool {
		if field != "model" {
			return true
		}
		_ = json.Unmarshal(value, &name) // OpenAI says what is wrong with it
		return false
	})
	return name
}

// reserved is how many tokens may be written, as far as the body says. The
// endpoints have different names for the most.
func reserved(r *http.Request) int {
	most, n := 0, 1
	asks(r, func(field string, value []byte) bool {
		switch field {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			most = max(most, number(value))
		case "n":
			n = max(n, number(value))
		}
		return true
	})
	return most * n
}

// number returns a count, and 0 for what is none.
func number(value []byte) (n int) {
	if json.Unmarshal(value, &n) != nil {
		return 0
	}
	return min(n, unpublished)
}

// bytesPerToken is about what English has. Other languages have fewer, so that
// requests cost less than they should until their usage is known.
const bytesPerToken = 4

// estimate is the default of [Options.Cost]. Uploads have no tokens; all else has
// one at least, or refusals could not hold it.
func estimate(r *http.Request) int {
	if !isJSON(r) {
		return 0
	}
	return max(1, reserved(r), int(r.ContentLength/bytesPerToken))
}
