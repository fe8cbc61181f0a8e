package openai

import (
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strings"
)

// head is how much of a request's body is looked at. What stands behind a long
// conversation or a picture is not found.
const head = 64 << 10

// members yields those of the JSON object in the head of a request's body. It
// reads a copy, and no further than it is asked to: the body itself is the base's.
func members(r *http.Request) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if r.GetBody == nil || !isJSON(r) {
			return
		}
		body, err := r.GetBody()
		if err != nil {
			return
		}
		defer body.Close()

		d := json.NewDecoder(io.LimitReader(body, head))
		if begin, _ := d.Token(); begin != json.Delim('{') {
			return
		}
		for d.More() {
			var value json.RawMessage
			name, _ := d.Token()
			text, ok := name.(string)
			if !ok || d.Decode(&value) != nil || !yield(text, value) {
				return // OpenAI says what is wrong with it
			}
		}
	}
}

func isJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// model is the default of [Options.Model]; "" if the head does not say.
func model(r *http.Request) (name string) {
	for field, value := range members(r) {
		if field == "model" {
			_ = json.Unmarshal(value, &name)
			break
		}
	}
	return name
}

// reserved is how many tokens may be written, as far as the head says. The
// endpoints have different names for the most.
func reserved(r *http.Request) int {
	most, n := 0, 1
	for field, value := range members(r) {
		switch field {
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			most = max(most, number(value))
		case "n":
			n = max(n, number(value))
		}
	}
	return most * n
}

// number returns a count, and 0 for what is none.
func number(value json.RawMessage) (n int) {
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
