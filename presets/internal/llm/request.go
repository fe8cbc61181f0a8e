// Package llm has what presets of language models share: limits, which model a request asks
// for, how many tokens it may take, and what answers say is left of a bucket.
package llm

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/reqbody"
	"github.com/fleetthrottle/throttle/store"
)

// Unpublished is the limit of a row until an answer states the remaining quota: more than anybody
// sends. It is a number, because only a number can be lowered.
const Unpublished = 1_000_000_000

// mostLooked is how much of a request's body is looked at: all of a long conversation with
// pictures, because SDKs put the member "model" behind the messages.
const mostLooked = 32 << 20

// members yields the members of the JSON object in a request's body that have one of the
// names, except objects and arrays, until yield returns false. quoted says that the value is a text. A
// body of any other type has no members. members reads a copy, and leaves the body itself unread.
func members(r *http.Request, names []string, yield func(name, value string, quoted bool) bool) {
	if !isJSON(r) {
		return
	}

	reqbody.Members(r, mostLooked, func(json *jsonscan.Scanner, member []byte) bool {
		i := slices.IndexFunc(names, func(name string) bool { return name == string(member) })

		// Skip objects and arrays unread: the messages may be long.
		first := json.Peek()
		if i < 0 || first == '{' || first == '[' {
			return json.Skip()
		}

		value, ok := json.Scalar()
		return ok && yield(names[i], value, first == '"')
	})
}

func isJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// Model is the member "model" of a request's body, or "" if the first such member is missing or is no text.
func Model(r *http.Request) (model string) {
	members(r, []string{"model"}, func(_, value string, quoted bool) bool {
		if quoted { // the upstream rejects any other value itself
			model = value
		}
		return false
	})
	return model
}

// The names that the endpoints have for the most tokens of an answer, and for the number of
// answers.
var (
	tokenNames  = []string{"max_tokens", "max_completion_tokens", "max_output_tokens"}
	answerNames = []string{"n", "best_of"}
	countNames  = slices.Concat(tokenNames, answerNames)
)

// Reserved is how many tokens may be written, as far as the body says: the most of each answer, times the
// answers asked for. It is 0 if the body states no such number, and at most [store.MaxCost].
func Reserved(r *http.Request) int {
	// Both are bounded, so that their product does not overflow. Of several names the largest number counts.
	tokens, answers := int64(0), int64(1)
	members(r, countNames, func(name, value string, quoted bool) bool {
		count, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil || quoted:
		case slices.Contains(tokenNames, name):
			tokens = max(tokens, min(count, Unpublished))
		default:
			answers = max(answers, min(count, Unpublished))
		}

		return true
	})

	return int(min(tokens*answers, store.MaxCost))
}

// bytesPerToken is about the number of English. Other languages have fewer bytes in a token, so their
// requests cost less than they should until their usage is known.
const bytesPerToken = 4

// Sent estimates the tokens that a request sends: at least one, also for a body of unknown length, because
// a row does not hold a request that is free. A body that is not JSON, such as an upload, has none.
func Sent(r *http.Request) int {
	if !isJSON(r) {
		return 0
	}
	return int(max(1, min(r.ContentLength/bytesPerToken, store.MaxCost)))
}
