package proxy

import (
	"net/http"
	"strings"

	problems "github.com/fleetthrottle/throttle/internal/problem"
)

// A form is how an API words an error. An SDK of a language model reads the form of its own API alone.
type form int

const (
	problemForm   form = iota // RFC 9457
	openAIForm                // OpenAI, and the many APIs with the same paths
	anthropicForm             // Anthropic, and APIs with the same paths
	geminiForm                // Gemini
)

// formOf returns the form of the API that a request to an upstream calls, as the API's SDKs send requests.
func formOf(r *http.Request) form {
	host, path := r.URL.Hostname(), r.URL.Path
	ends := func(suffixes ...string) bool {
		for _, s := range suffixes {
			if strings.HasSuffix(path, s) {
				return true
			}
		}
		return false
	}

	switch {
	case host == "api.anthropic.com", r.Header.Get("Anthropic-Version") != "", ends("/v1/messages"):
		return anthropicForm
	case host == "api.openai.com", ends("/chat/completions", "/completions", "/embeddings", "/responses"):
		return openAIForm
	case host == "generativelanguage.googleapis.com", ends(":generateContent", ":streamGenerateContent", ":embedContent", ":batchEmbedContents"):
		return geminiForm
	}

	return problemForm
}

// A formedProblem is a problem that also has the error in the form of an API.
type formedProblem struct {
	Type string `json:"type,omitempty"` // in place of the problem's
	*problems.Problem
	Error any `json:"error"`
}

// of returns the Content-Type and the body of a problem.
func (f form) of(p *problem) (kind string, body any) {
	const json = "application/json"
	switch f {
	case openAIForm:
		return json, formedProblem{p.Type, &p.Problem, openAIErrorOf(p)}
	case anthropicForm:
		return json, formedProblem{"error", &p.Problem, anthropicError{anthropicTypes.of(p.Status), p.Detail}}
	case geminiForm:
		return json, formedProblem{p.Type, &p.Problem, geminiError{p.Status, p.Detail, geminiStatuses.of(p.Status)}}
	}
	return problems.Kind, &p.Problem
}

// An openAIError is an error of OpenAI. Its SDKs drop what stands beside it, so it also names the policy.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	Policy  string  `json:"policy,omitempty"`
}

// openAIErrorOf returns a problem as an error of OpenAI. The type of a refusal is what ran out.
func openAIErrorOf(p *problem) openAIError {
	e := openAIError{Message: p.Detail, Type: openAITypes.of(p.Status), Policy: p.Policy}
	if p.Status != http.StatusTooManyRequests {
		return e
	}

	code := "rate_limit_exceeded"
	e.Code = &code
	if strings.HasSuffix(p.Policy, "-tokens") {
		e.Type = "tokens"
	}
	return e
}

// An anthropicError is an error of Anthropic.
type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// A geminiError is an error of Gemini.
type geminiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
}

// words are the names that an API has for statuses. The name for 500 stands for statuses that are missing.
type words map[int]string

func (w words) of(status int) string {
	if word, ok := w[status]; ok {
		return word
	}
	return w[http.StatusInternalServerError]
}

var (
	openAITypes    = words{429: "requests", 403: "invalid_request_error", 500: "server_error"}
	anthropicTypes = words{429: "rate_limit_error", 403: "permission_error", 500: "api_error"}
	geminiStatuses = words{429: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
)
