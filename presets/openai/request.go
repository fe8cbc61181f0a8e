package openai

import (
	"encoding/json"
	"net/http"
	"strings"
)

// An asked is what counts of a request's body. The endpoints have different
// names for the most tokens that they may write.
type asked struct {
	Model string `json:"model"`
	N     int    `json:"n"`

	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	MaxOutputTokens     int `json:"max_output_tokens"`
}

// ask reads a copy of the request's body. What is not there or cannot be read
// is zero.
func ask(r *http.Request) (a asked) {
	if r.GetBody == nil || !isJSON(r) {
		return a
	}
	body, err := r.GetBody()
	if err != nil {
		return a
	}
	defer body.Close()
	_ = json.NewDecoder(body).Decode(&a) // OpenAI says what is wrong with it
	return a
}

func isJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// reserved is how many tokens may be written.
func (a asked) reserved() int {
	most := max(a.MaxTokens, a.MaxCompletionTokens, a.MaxOutputTokens)
	return min(most, unpublished) * min(max(a.N, 1), unpublished)
}

// bytesPerToken is about what English has. Other languages have fewer, so that
// requests cost less than they should until their usage is known.
const bytesPerToken = 4

// estimate is the default of [Options.Cost]. Uploads have no tokens.
func estimate(r *http.Request) int {
	if !isJSON(r) {
		return 0
	}
	return max(ask(r).reserved(), int(r.ContentLength/bytesPerToken))
}
