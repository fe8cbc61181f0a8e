// Package any is one row for each host and credential, for APIs that nobody has described.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: any.Policies(any.Options{}),
//	}))}
//
// # Rows
//
//	any    what the API's answers tell, to each host with each credential
//
// The row holds nothing until an answer tells a limit or refuses. It learns where the API allows
// less than it tells. A credential is the Authorization, an API key in one of the usual header
// fields, or a key in the query. A signature is different for each request and no credential, so
// signed requests share the budget of their host and their scheme.
//
// # Refusals
//
//	403, 429 or 503 with a remaining quota of 0    any, until the quota's reset
//	429                                            any, for Retry-After, else a second
//	503, ten in a row                              any, for Retry-After
//
// A refusal that comes again right after the end closes the row for longer.
//
// # Not covered
//
// A limit that an API neither tells nor refuses by. Costs, which are 1. Limits of a single path:
// use the preset of the API, or a row of your own.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the fields RateLimit and RateLimit-Policy:
//     https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
//   - official: Authorization and its schemes: https://www.rfc-editor.org/rfc/rfc9110#section-11.6.2
//   - from common use: X-RateLimit-Limit, -Remaining and -Reset; the fields of API keys.
package any

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
)

// Options are whose requests are counted together. The zero value tells callers apart by their
// credentials.
type Options struct {
	// Account is the id of the account whose limits they are, not a secret. Defaults to
	// "": accounts are told apart by the credential of each request.
	Account string

	// Caller says for which account a request is, for a program that calls for several.
	// It replaces Account, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (account string)

	// Host is a pattern of the hosts that the row is for. Defaults to "": every host.
	Host string
}

// Policies returns the table. Its row is a plain value: change it, append your own.
func Policies(o Options) []throttle.Policy {
	account := caller.Or(caller.ID(o.Account, o.Caller), credential)
	return []throttle.Policy{{
		Name: "any", Match: o.Host + "/", Key: throttle.Join(throttle.Host, account),
		Limit: throttle.Told(), Answer: feedback.Told{}.Answer, Adaptive: true,
	}}
}

// keyFields are the header fields in which APIs take a key.
var keyFields = [...]string{"X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token", "Private-Token"}

// keyParameters are the parameters in which APIs take a key.
var keyParameters = [...]string{"api_key", "apikey", "access_token", "key", "token"}

// lasting are the schemes of Authorization whose text is the same in each request.
var lasting = [...]string{"bearer", "basic", "token", "apikey", "key"}

// credential is a [throttle.Policy.Key]: the credential of a request, or "". For an Authorization that may differ in each
// request, such as a signature, it is the scheme alone.
func credential(r *http.Request) string {
	if text := r.Header.Get("Authorization"); text != "" {
		scheme, _, hasScheme := strings.Cut(text, " ")
		for _, same := range lasting {
			if !hasScheme || strings.EqualFold(scheme, same) {
				return text
			}
		}
		return scheme
	}

	for _, name := range keyFields {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}

	// Most requests have no query that is worth reading.
	if r.URL.RawQuery == "" {
		return ""
	}
	query := r.URL.Query()
	for _, name := range keyParameters {
		if key := query.Get(name); key != "" {
			return key
		}
	}

	return ""
}
