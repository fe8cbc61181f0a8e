// Package presettest tests a table of policies with answers of its upstream: what
// each answer closes, and for how long.
package presettest

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// Header is a message's header with one value for each field.
type Header map[string]string

// JSON returns the header of a message in JSON, with more fields: names and values in
// turn.
func JSON(more ...string) Header {
	h := Header{"Content-Type": "application/json; charset=utf-8"}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// A Case is one answer of an upstream, and the expected effects on the table.
type Case struct {
	Name string

	// The request, such as "POST https://api.example.com/things": "GET " may
	// be left out.
	Request string
	Sends   Header // its header
	Body    string // its body

	// The answer. Status defaults to 200. Date defaults to the time of the
	// bubble, which begins at midnight UTC of 2000-01-01; "-" stands for none.
	Status  int
	Header  Header
	Answers string // the body
	Chunked bool   // it does not tell its length

	// The expected effects, policy by policy, separated by ", ". Any further effect fails the case.
	Closes string // for how long: "github-primary 15m"
	Left   string // how much, and until when, as the answer states it: "github-primary 4000 15m"
	Costs  string // where it differs from the booked cost: "github-primary 0"

	// NoRefusal says that the answer is certainly no refusal, or that a part of the request was executed: the
	// request is not repeated.
	NoRefusal bool
}

// Recorded is the case of a published answer: status, header and body as in HTTP, in a file of
// testdata. Its first lines begin with "# " and name the source: "# official, 2026-11: https://…"
// for the platform's own publication, or "# observed, …".
func Recorded(t *testing.T, file string) Case {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	answer := string(text)

	// A recorded answer without its source proves nothing.
	sources := 0
	for strings.HasPrefix(answer, "# ") {
		source, rest, _ := strings.Cut(answer, "\n")
		require.Regexp(t, `^# (?:official|observed), 20\d\d-\d\d: https://\S+`, source, file)
		answer, sources = rest, sources+1
	}

	require.Positive(t, sources, "%s has no source", file)
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	require.NoError(t, err, file)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err, file)

	c := Case{Status: resp.StatusCode, Header: make(Header), Answers: strings.TrimSuffix(string(body), "\n")}
	for name := range resp.Header {
		c.Header[name] = resp.Header.Get(name)
	}

	return c
}

// As returns the case under a name, with the budgets that its answer must close.
func (c Case) As(name, closes string) Case {
	c.Name, c.Closes = name, closes
	return c
}

// Run plays each case in virtual time, with a store of its own: the calls of the store must be as
// the case expects, the next request like this one must not start before the last of the budgets opens,
// and the answer must come through unchanged. An omitted request, status or header is the usual one.
func Run(t *testing.T, policies []throttle.Policy, usual Case, cases []Case) {
	t.Helper()
	for _, c := range cases {
		c.Request, c.Body = cmp.Or(c.Request, usual.Request), cmp.Or(c.Body, usual.Body)
		c.Status = cmp.Or(c.Status, usual.Status, http.StatusOK)
		if c.Sends == nil {
			c.Sends = usual.Sends
		}
		if c.Header == nil {
			c.Header = usual.Header
		}

		t.Run(c.Name, func(t *testing.T) {
			// In virtual time the wait for a closed budget costs nothing.
			synctest.Test(t, func(t *testing.T) { c.play(t, policies) })
		})
	}
}

// play sends the case's request, compares what the store was told, and sends the request again if a budget
// closed: the second request must wait for the last of these budgets.
func (c Case) play(t *testing.T, policies []throttle.Policy) {
	told := newLedger(t)
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: told, Policies: policies, Base: c})
	require.NoError(t, err)

	c.send(t, transport)
	synctest.Wait() // a meter tells the store when the body is over
	closes := listed(t, c.Closes)
	require.Equal(t, closes, told.closes, "which budgets are closed, and for how long")
	require.Equal(t, listed(t, c.Left), told.left, "what is left of which budgets")
	require.Equal(t, listed(t, c.Costs), told.costs, "what the request has cost")

	longest := time.Duration(0)
	for _, d := range closes {
		longest = max(longest, d.lasts)
	}

	if longest > 0 {
		begin := time.Now()
		c.send(t, transport)
		require.GreaterOrEqual(t, time.Since(begin), longest, "when the next request starts")
	}
}

// send sends the case's request. It fails unless the answer's body comes back unchanged, and the answer's
// verdict is as NoRefusal says.
func (c Case) send(t *testing.T, transport http.RoundTripper) {
	t.Helper()
	resp, err := transport.RoundTrip(c.request(t))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, c.NoRefusal, throttle.AnswerOf(resp).Verdict > throttle.VerdictRefused, "whether it is certainly no refusal, or was done")
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, c.Answers, string(body), "the body must come through untouched")
}

func (c Case) request(t *testing.T) *http.Request {
	t.Helper()
	r := Request(t, c.Request, c.Body)
	c.Sends.fill(r.Header)
	return r
}

// RoundTrip implements http.RoundTripper: the case is the upstream, too.
func (c Case) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: c.Status, Header: make(http.Header), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(c.Answers)), ContentLength: int64(len(c.Answers)),
	}

	if c.Chunked {
		resp.ContentLength = -1
	}

	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	c.Header.fill(resp.Header)

	// A case says by "-" that the answer has no Date.
	if resp.Header.Get("Date") == "-" {
		resp.Header.Del("Date")
	}

	return resp, nil
}

func (h Header) fill(header http.Header) {
	for name, value := range h {
		header.Set(name, value)
	}
}

// A statement is a store's information about one policy's budget.
type statement struct {
	number int
	lasts  time.Duration
}

// listed reads the statements of a case, by policy: "a 15m, b 4000 15m". A statement without a number or a
// duration has 0.
func listed(t *testing.T, text string) map[string]statement {
	t.Helper()
	all := make(map[string]statement)
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		var s statement

		// Numbers and durations stand behind the name, which may have spaces.
		for len(words) > 1 {
			last := words[len(words)-1]
			if n, err := strconv.Atoi(last); err == nil {
				s.number = n
			} else if d, err := time.ParseDuration(last); err == nil {
				s.lasts = d
			} else {
				break
			}

			words = words[:len(words)-1]
		}

		if len(words) > 0 {
			all[strings.Join(words, " ")] = s
		}
	}

	return all
}

// A ledger is a store that also records the effects of an answer, by policy.
type ledger struct {
	throttle.Store
	t                   *testing.T
	closes, left, costs map[string]statement
}

func newLedger(t *testing.T) *ledger {
	return &ledger{memstore.New(), t, make(map[string]statement), make(map[string]statement), make(map[string]statement)}
}

// Pause implements [throttle.Store].
func (l *ledger) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	l.closes[c.Budget.Policy] = statement{lasts: d}
	return l.Store.Pause(ctx, c, d)
}

// Refuse implements [throttle.Store].
func (l *ledger) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	l.closes[c.Budget.Policy] = statement{lasts: r.Length}
	return l.Store.Refuse(ctx, c, r)
}

// Reconcile implements [throttle.Store].
func (l *ledger) Reconcile(ctx context.Context, c store.Charge, q throttle.Quota) error {
	require.Zero(l.t, q.Age)
	l.left[c.Budget.Policy] = statement{q.Left, q.Reset}
	return l.Store.Reconcile(ctx, c, q)
}

// Settle implements [throttle.Store].
func (l *ledger) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	for i, c := range b.Charges {
		if costs[i] != c.Cost {
			l.costs[c.Budget.Policy] = statement{number: costs[i]}
		}
	}
	return l.Store.Settle(ctx, b, g, costs)
}
