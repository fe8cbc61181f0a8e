// Package llm has what presets of language models share: limits, which model a request asks
// for, how many tokens it may take, and what answers say is left of a bucket.
package llm

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle/presets/internal/reqbody"
)

// Unpublished is the number of a row until an answer says what is left of it: more than
// anybody sends. It is a number, because what has none cannot be lowered.
const Unpublished = 1_000_000_000

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

// Model is the member "model" of a request's body; "" if the body does not say. It may
// stand behind the messages, and SDKs put it there.
func Model(r *http.Request) (name string) {
	asks(r, func(field string, value []byte) bool {
		if field != "model" {
			return true
		}
		_ = json.Unmarshal(value, &name) // the upstream says what is wrong with it
		return false
	})
	return name
}

// Reserved is how many tokens may be written, as far as the body says. The
// endpoints have different names for the most, and for the number of answers.
func Reserved(r *http.Request) int {
	most, n := 0, 1
	asks(r, func(field string, value []byte) bool {
		switch field {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			most = max(most, number(value))
		case "n", "best_of":
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
	return min(n, Unpublished)
}

// bytesPerToken is about what English has. Other languages have fewer, so that
// requests cost less than they should until their usage is known.
const bytesPerToken = 4

// Sent estimates the tokens that a request sends: one at least, or refusals could not
// hold it. Uploads have none.
func Sent(r *http.Request) int {
	if !isJSON(r) {
		return 0
	}
	return max(1, int(r.ContentLength/bytesPerToken))
}

// Estimate is what a request reserves or what it sends, whichever is more. Uploads
// have no tokens.
func Estimate(r *http.Request) int {
	if !isJSON(r) {
		return 0
	}
	return max(Sent(r), Reserved(r))
}
