package waitapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/internal/problem"
)

// A digest is a hash of an Idempotency-Key, or of the demands and lifetime.
type digest [sha256.Size]byte

// mostDemands is how many demands one permit may have.
const mostDemands = 32

// An acquireRequest is a parsed /v1/acquire.
type acquireRequest struct {
	demands  []throttle.Demand
	budgets  []budget
	wait     time.Duration // as for throttle.WithMaxWait
	priority throttle.Priority
	lifetime time.Duration
	aside    bool            // the caller prefers a place to a long wait
	place    *throttle.Place // the caller's place, or nil
	key      digest          // zero without an Idempotency-Key
	body     digest          // of demands and lifetime, zero without an Idempotency-Key
}

// readAcquire reads and parses a request, or returns a problem.
func readAcquire(w http.ResponseWriter, r *http.Request, c *Config, arriving bodies) (*acquireRequest, *problem.Problem) {
	q := &acquireRequest{priority: inbound.Priority(r.Header), lifetime: c.Lifetime, wait: inbound.MaxWait(r.Header, c.MaxWait), aside: prefersAside(r.Header)}
	key, bad := keyOf(r.Header)
	if bad != nil {
		return nil, bad
	}

	body, bad := arriving.read(w, r)
	if bad != nil {
		return nil, bad
	}

	var d reader
	wait := time.Duration(-1) // below 0 if the body has no wait
	d.read(body, map[string]field{
		"demands":  d.list(mostDemands, func(raw json.RawMessage, at string) { q.demands = append(q.demands, readDemand(&d, raw, at, c)) }),
		"wait":     d.seconds(&wait, 0, throttle.MaxPenalty),
		"priority": d.priority(&q.priority),
		"place":    d.place(q),
		"lifetime": d.seconds(&q.lifetime, time.Millisecond, c.MaxLifetime),
	}, "demands")

	if bad := d.problem(); bad != nil {
		return nil, bad
	}

	// The body can shorten the wait of the header and the configuration, but not extend it.
	switch {
	case wait == 0:
		q.wait = throttle.NoWait // in WithMaxWait 0 is the default
	case wait > 0:
		q.wait = min(q.wait, wait)
	}

	if key != "" {
		// Leave the place out: a caller that lost an answer may have an older place. Marshal never fails.
		same, _ := json.Marshal([]any{q.demands, q.lifetime})
		q.key, q.body = sha256.Sum256([]byte(key)), sha256.Sum256(same)
	}

	for i := range q.demands {
		q.budgets = append(q.budgets, budgetOf(&q.demands[i], c.Limiters))
	}

	return q, nil
}

// readDemand parses one demand, which is at a JSON pointer of the body that d parses.
func readDemand(d *reader, raw json.RawMessage, at string, c *Config) throttle.Demand {
	var demand throttle.Demand
	var free bool
	d.object(raw, at, map[string]field{
		"policy": d.policy(&demand.Policy, c.Limiters),
		"key":    d.text(&demand.Key),
		"cost":   d.number(&demand.Cost, 1),
		"free":   d.truth(&free),
	}, "policy")

	switch {
	case free && demand.Cost > 0:
		d.mistake(at+"/cost", "is set for free work: leave one out")
	case free:
		demand.Cost = throttle.Free
	}

	return demand
}

// policy returns a field that names a policy of the limiters.
func (d *reader) policy(to *string, limiters *throttle.Limiters) field {
	return d.word(to, func(name string) bool {
		_, err := limiters.Limiter(name)
		return err == nil
	}, "is no policy here")
}

// priority returns a field that names a priority.
func (d *reader) priority(to *throttle.Priority) field {
	return func(raw json.RawMessage, at string) {
		var name string
		_ = json.Unmarshal(raw, &name) // a value that is no string leaves "", which is no priority
		for _, p := range []throttle.Priority{throttle.PriorityLow, throttle.PriorityNormal, throttle.PriorityHigh} {
			if name == p.String() {
				*to = p
				return
			}
		}
		d.mistake(at, "is not low, normal or high")
	}
}

// seed makes budget hashes unguessable.
var seed = maphash.MakeSeed()

// A budget identifies one budget of a permit.
type budget struct {
	hash uint64
	most int // highest cost that a caller may settle, 0 for a limit that counts no starts
}

// budgetOf returns the budget of a demand. For a policy that is no longer there its most is 0.
func budgetOf(d *throttle.Demand, limiters *throttle.Limiters) budget {
	b := budget{hash: budgetHash(d.Policy, d.Key)}
	policies := limiters.Policies()
	i := slices.IndexFunc(policies, func(p throttle.Policy) bool { return p.Name == d.Policy })
	if i >= 0 && policies[i].Limit.Counts() {
		b.most = max(policies[i].Limit.N(), policies[i].Limit.Capacity())
	}
	return b
}

func budgetHash(policy, key string) uint64 {
	return maphash.Comparable(seed, [2]string{policy, key})
}

// mostKey is the longest Idempotency-Key.
const mostKey = 255

// keyOf returns the Idempotency-Key of a request, or a problem if it is malformed. The field may be a string of
// RFC 8941, or the key without quotes. Without the field keyOf returns "".
func keyOf(h http.Header) (string, *problem.Problem) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}

	key := values[0]
	if inner, ok := strings.CutPrefix(key, `"`); ok {
		key, ok = strings.CutSuffix(inner, `"`)
		if !ok {
			key = "" // is refused below
		}
	}

	odd := func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }
	if len(values) > 1 || key == "" || len(key) > mostKey || strings.ContainsFunc(key, odd) {
		return "", problem.New(http.StatusBadRequest, `the Idempotency-Key is not one of 1 to 255 ASCII characters, without spaces, \ and "`)
	}

	return key, nil
}

// A placed is the answer 202, and the error that ends the wait of its permit.
type placed struct {
	Place      string  `json:"place"`
	RetryAfter float64 `json:"retryAfter"` // in seconds
}

// Error implements error.
func (p *placed) Error() string { return "waitapi: the caller has a place" }

// reserve acquires a permit by the caller's place or, without one, by a new place. If the start is far away, the error
// is a *placed.
func (q *acquireRequest) reserve(ctx context.Context, l *throttle.Limiters) (*throttle.Permit, error) {
	permit, place, err := l.Reserve(ctx, q.place, q.demands...)
	if place == nil {
		return permit, err
	}
	text, _ := place.MarshalText() // never fails
	return nil, &placed{string(text), place.RetryAfter().Seconds()}
}

// place returns a field with a place. An empty place asks for a new one.
func (d *reader) place(q *acquireRequest) field {
	return func(raw json.RawMessage, at string) {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			d.mistake(at, "is not a string")
			return
		}

		// With a place, given or new, the caller does not wait in the call.
		q.aside = true
		if text != "" {
			q.place = new(throttle.Place)
			if q.place.UnmarshalText([]byte(text)) != nil {
				d.mistake(at, "is no place: send it as it was answered, or \"\" for a new one")
			}
		}
	}
}

// prefersAside reports whether a caller prefers a place to a long wait, by "Prefer: respond-async".
func prefersAside(h http.Header) bool {
	for _, value := range h.Values("Prefer") {
		for preference := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == ',' || c == ';' }) {
			if strings.EqualFold(strings.TrimSpace(preference), "respond-async") {
				return true
			}
		}
	}
	return false
}

// writePlaced answers 202 with a place.
func writePlaced(w http.ResponseWriter, p *placed) {
	text, _ := json.Marshal(p) // never fails
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(p.RetryAfter)))))
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(text) // a caller that misses it asks again for a new place
}

// A body has at most mostBody bytes, and arrives within bodyTime. At most
// mostBodies arrive at once, so that slow callers cannot fill the memory.
const (
	mostBody   = 64 << 10
	bodyTime   = 10 * time.Second
	mostBodies = 1024
)

// bodies is a semaphore of bodies that arrive.
type bodies chan struct{}

// read returns the whole body of a request. It runs before the caller waits, because net/http notices a
// caller that leaves only after the body (golang/go#23262). It refuses a body that is not JSON: a browser sends
// some other types for a page of any origin without a preflight request.
func (b bodies) read(w http.ResponseWriter, r *http.Request) ([]byte, *problem.Problem) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, problem.New(http.StatusUnsupportedMediaType, "the Content-Type is not application/json")
	}

	select {
	case b <- struct{}{}:
		defer func() { <-b }()
	default:
		return nil, refuse("too many bodies are on their way to this process")
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err == nil {
		// Lift the deadline of ServeHTTP. After an error it stays: net/http reads the rest of the body before it answers.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}

	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, problem.New(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", mostBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.New(http.StatusRequestTimeout, "the body of the request came too slowly")
	case err != nil:
		return nil, problem.New(http.StatusBadRequest, "the body of the request could not be read")
	}

	return body, nil
}

// A reader parses a body and collects all mistakes.
type reader struct {
	mistakes []problem.Mistake
}

// A field parses one value at a JSON pointer.
type field func(raw json.RawMessage, at string)

// read parses a body that is one object: see object.
func (d *reader) read(body []byte, fields map[string]field, required ...string) {
	if err := json.Unmarshal(body, new(json.RawMessage)); err != nil || !utf8.Valid(body) {
		d.mistake("#", "is not one JSON value in UTF-8")
		return
	}
	d.object(body, "#", fields, required...)
}

// problem returns the answer with all mistakes, or nil.
func (d *reader) problem() *problem.Problem {
	if len(d.mistakes) == 0 {
		return nil
	}
	text := d.mistakes[0].Pointer + " " + d.mistakes[0].Detail
	if more := len(d.mistakes) - 1; more > 0 {
		text += fmt.Sprintf(", and errors has %d more", more)
	}
	p := problem.New(http.StatusBadRequest, "the body has a mistake: "+text)
	p.Errors = d.mistakes
	return p
}

func (d *reader) mistake(at, detail string) {
	d.mistakes = append(d.mistakes, problem.Mistake{Pointer: at, Detail: detail})
}

// object parses an object that has only these fields, each at most once, and all the required fields.
func (d *reader) object(raw json.RawMessage, at string, fields map[string]field, required ...string) {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	if begin, _ := tokens.Token(); begin != json.Delim('{') {
		d.mistake(at, "is not an object")
		return
	}

	// encoding/json would silently keep the last of two equal fields.
	seen := make(map[string]bool)
	for tokens.More() {
		token, _ := tokens.Token()
		name := token.(string)
		var value json.RawMessage
		_ = tokens.Decode(&value) // raw is valid

		pointer := at + "/" + pointerPart(name)
		switch read := fields[name]; {
		case read == nil:
			d.mistake(pointer, "is not known")
		case seen[name]:
			d.mistake(pointer, "is there twice")
		case string(value) == "null":
			d.mistake(pointer, "is null: leave it out")
		default:
			read(value, pointer)
		}

		seen[name] = true
	}

	for _, name := range required {
		if !seen[name] {
			d.mistake(at+"/"+name, "is missing")
		}
	}
}

// pointerPart escapes a name for a JSON pointer in a URI fragment.
func pointerPart(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

// list returns a field with a list of 1 to most elements.
func (d *reader) list(most int, element field) field {
	return func(raw json.RawMessage, at string) {
		var all []json.RawMessage
		switch err := json.Unmarshal(raw, &all); {
		case err != nil:
			d.mistake(at, "is not a list")
		case len(all) == 0 || len(all) > most:
			d.mistake(at, fmt.Sprintf("has %d elements: use 1 to %d", len(all), most))
		default:
			for i, one := range all {
				element(one, fmt.Sprintf("%s/%d", at, i))
			}
		}
	}
}

func (d *reader) text(to *string) field {
	return func(raw json.RawMessage, at string) {
		if json.Unmarshal(raw, to) != nil {
			d.mistake(at, "is not a string")
		}
	}
}

// word returns a field with a string for which isGood must be true.
func (d *reader) word(to *string, isGood func(string) bool, mistake string) field {
	return func(raw json.RawMessage, at string) {
		var s string
		if json.Unmarshal(raw, &s) != nil || !isGood(s) {
			d.mistake(at, mistake)
			return
		}
		*to = s
	}
}

// truth returns a field with true or false.
func (d *reader) truth(to *bool) field {
	return func(raw json.RawMessage, at string) {
		if json.Unmarshal(raw, to) != nil {
			d.mistake(at, "is not true or false")
		}
	}
}

// number returns a field with an integer from lowest to [math.MaxInt32].
func (d *reader) number(to *int, lowest int) field {
	return func(raw json.RawMessage, at string) {
		var n int32
		if json.Unmarshal(raw, &n) != nil || int(n) < lowest {
			d.mistake(at, fmt.Sprintf("is not an integer from %d to %d", lowest, math.MaxInt32))
		}
		*to = int(n)
	}
}

// seconds returns a field with a number of seconds, from least to most.
func (d *reader) seconds(to *time.Duration, least, most time.Duration) field {
	return func(raw json.RawMessage, at string) {
		var s float64
		if json.Unmarshal(raw, &s) != nil || s < least.Seconds() || s > most.Seconds() {
			d.mistake(at, fmt.Sprintf("is not a number of seconds from %v to %v", least.Seconds(), most.Seconds()))
			return
		}
		*to = time.Duration(s * float64(time.Second))
	}
}
