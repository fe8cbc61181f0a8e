package feedback_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/feedback"
)

// A trickle is a body that comes in pieces. A reader that reads beyond the last
// would have to wait.
type trickle struct {
	pieces []string
	reads  int
	waited bool
}

func (b *trickle) Read(p []byte) (int, error) {
	b.reads++
	if len(b.pieces) == 0 {
		b.waited = true
		return 0, io.EOF
	}
	n := copy(p, b.pieces[0])
	if b.pieces[0] = b.pieces[0][n:]; b.pieces[0] == "" {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func (b *trickle) Close() error { return nil }

// TestNobodyWaitsForMoreThanItTakes: an answer that trickles is held until it is
// decided, and no longer. An expression looks two characters ahead.
func TestNobodyWaitsForMoreThanItTakes(t *testing.T) {
	banned := feedback.Text{Pattern: regexp.MustCompile(`^\s*<html>banned`), Lasts: time.Second}.Answer
	retry := feedback.Printed{Fields: []string{"retry_after"}}.Answer
	page := feedback.Printed{Pattern: regexp.MustCompile(`in (\d+)s`)}.Answer
	for _, c := range []struct {
		name    string
		media   string
		penalty feedback.Reader
		pieces  []string
		want    time.Duration
		waited  bool
	}{
		{"the code has come", "application/json", dingtalk.Answer,
			[]string{`{"sub_`, `code"`, `:90`, `018`, `,`}, time.Second, false},
		{"the code may go on", "application/json", dingtalk.Answer, []string{`{"sub_code":90018`}, 0, true},
		{"a better code may come", "application/json", dingtalk.Answer, []string{`{"errcode":90018,`}, time.Second, true},
		{"the value has ended", "application/json", dingtalk.Answer, []string{`{"errcode":0,"errmsg":"ok"`, `}`}, 0, false},
		{"the first line has ended", "application/json", dingtalk.Answer, []string{"{\"type\":\"ADDED\"}\n"}, 0, false},
		{"a list has no fields", "application/json", dingtalk.Answer, []string{` [`}, 0, false},
		{"no JSON after all", "application/json", dingtalk.Answer, []string{`<`}, 0, false},
		{"malformed", "application/json", dingtalk.Answer, []string{`{"a":1}`}, 0, false},
		{"a page that does not match", "text/html", banned, []string{" ", "<html>ba", "ck to"}, 0, false},
		{"a page that matches", "text/html", banned, []string{" ", "<html>ba", "nned, sorry"}, time.Second, false},
		{"JSON in a text", "text/plain", dingtalk.Answer, []string{"\ufeff {\"sub_", `code":90018,`}, time.Second, false},
		{"a text that is none", "text/plain", dingtalk.Answer, []string{"hello"}, 0, false},
		{"nothing of a text has come", "", dingtalk.Answer, []string{"\r\n", `{"sub_code":90018}`}, 0, false},
		{"a line of JSON in a text", "text/plain", dingtalk.Answer, []string{"{\"n\":1}\n"}, 0, false},
		{"what is printed has come", "application/json", retry, []string{`{"retry_after":30,`}, 30 * time.Second, false},
		{"what is printed on a page has come", "text/html", page, []string{"try again in 30s or so"}, 30 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := &trickle{pieces: c.pieces}
			resp := answer(200, "", "Content-Type", c.media)
			resp.ContentLength, resp.Body = -1, body
			requireCloses(t, c.want, c.penalty(resp))
			require.Equal(t, c.waited, body.waited)
		})
	}
}

// TestWhichBodiesAreLookedAt: the first read tells.
func TestWhichBodiesAreLookedAt(t *testing.T) {
	const unknown, large = -1, 1 << 30
	for _, c := range []struct {
		name   string
		status int
		length int64
		media  string
		looked bool
	}{
		{"JSON", 200, 100, "application/json", true},
		{"JSON, unknown length", 200, unknown, "application/json", true},
		{"JSON, upper case and a charset", 200, unknown, "APPLICATION/JSON; Charset=UTF-8", true},
		{"JSON, long", 200, large, "application/json", true},
		{"text/json", 200, unknown, "text/json", true},
		{"a kind of JSON", 200, unknown, "application/problem+json", true},
		{"HTML", 200, unknown, "text/html", true},
		{"XML", 200, unknown, "application/xml", true},
		{"a kind of XML", 200, unknown, "application/xhtml+xml", true},
		{"a short text", 200, 100, "text/plain", true},
		{"as long as what is looked at", 200, 64 << 10, "text/plain", true},
		{"one byte more", 200, 64<<10 + 1, "text/plain", false},
		{"a text, unknown length", 200, unknown, "text/plain", true},
		{"no type", 200, 100, "", true},
		{"no type, unknown length", 200, unknown, "", true},
		{"a download", 200, large, "application/octet-stream", false},
		{"a download, unknown length", 200, unknown, "application/octet-stream", false},
		{"a picture, unknown length", 200, unknown, "image/png", false},
		{"a type of nobody, unknown length", 200, unknown, "json", true},
		{"a call of gRPC", 200, unknown, "application/grpc+proto", false},
		{"lines of JSON", 200, unknown, "application/x-ndjson", false},
		{"a sequence of JSON", 200, unknown, "application/json-seq", false},
		{"a stream of JSON", 200, unknown, "application/stream+json", false},
		{"events", 200, unknown, "text/event-stream", false},
		{"events with a charset", 200, unknown, "Text/Event-Stream;charset=utf-8", false},
		{"events, short", 200, 100, "text/event-stream", false},
		{"events of an error", 429, unknown, "text/event-stream", false},
		{"parts", 200, unknown, "multipart/mixed; boundary=x", false},
		{"parts of an error", 429, 100, "multipart/mixed; boundary=x", false},
		{"an error", 429, unknown, "text/plain", true},
		{"an error without a type", 403, unknown, "", true},
		{"a long error", 500, large, "application/octet-stream", true},
		{"a redirect", 302, unknown, "text/plain", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			looks := map[string]feedback.Reader{
				"codes":   dingtalk.Answer,
				"text":    feedback.Text{Pattern: regexp.MustCompile("x"), Max: 64 << 10}.Answer,
				"printed": feedback.Printed{Fields: []string{"x"}}.Answer,
			}
			for name, penalty := range looks {
				body := &trickle{pieces: []string{" "}}
				resp := answer(c.status, "", "Content-Type", c.media)
				resp.ContentLength, resp.Body = c.length, body
				requireCloses(t, 0, penalty(resp))
				require.Equal(t, c.looked, body.reads > 0, name)
			}
		})
	}
}

// TestWhatIsNotAskedForIsNotTouched: neither by a When that does not hold, nor
// if there is nothing to see.
func TestWhatIsNotAskedForIsNotTouched(t *testing.T) {
	for _, c := range []struct {
		name    string
		penalty feedback.Reader
		resp    *http.Response
	}{
		{"another status", feedback.When{Status: []int{403}}.Then(dingtalk.Answer), jsonAnswer(200, "")},
		{"another path", feedback.When{Path: []string{"/topapi/*"}}.Then(dingtalk.Answer), jsonAnswer(200, "")},
		{"another type", feedback.When{Media: []string{"text/html"}}.Then(dingtalk.Answer), jsonAnswer(200, "")},
		{"a connection", dingtalk.Answer, answer(101, "", "Content-Type", "application/json")},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := &trickle{pieces: []string{`{"sub_code":90018}`}}
			c.resp.Body = body
			require.Zero(t, c.penalty(c.resp))
			require.Zero(t, body.reads)
			require.Same(t, body, c.resp.Body)
		})
	}
	t.Run("no body", func(t *testing.T) {
		for _, none := range []io.ReadCloser{nil, http.NoBody} {
			resp := jsonAnswer(429, "")
			resp.Body = none
			requireCloses(t, 0, dingtalk.Answer(resp))
			require.Equal(t, none, resp.Body)
		}
	})
	t.Run("decoded by the transport", func(t *testing.T) {
		resp := answer(200, `{"errcode":90018}`, "Content-Type", "application/json")
		resp.Uncompressed, resp.ContentLength = true, -1
		requireCloses(t, time.Second, dingtalk.Answer(resp))
	})
}

// TestAGigabyteIsLookedAtAndHandedOn: at most 64 KB are read ahead of the reader.
func TestAGigabyteIsLookedAtAndHandedOn(t *testing.T) {
	const size = 1 << 30
	body := &spaces{left: size}
	resp := answer(200, "", "Content-Type", "application/json")
	resp.ContentLength, resp.Body = size, body
	requireCloses(t, 0, dingtalk.Answer(resp))
	require.Equal(t, int64(size-64<<10), body.left)

	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.Equal(t, int64(size), n)
}

var blank = bytes.Repeat([]byte(" "), 32<<10)

// spaces are a body of so many of them.
type spaces struct{ left int64 }

func (b *spaces) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), b.left)], blank)
	b.left -= int64(n)
	return n, nil
}

func (b *spaces) Close() error { return nil }

// TestAnErrorBelongsToTheReader: what came before it is still a code.
func TestAnErrorBelongsToTheReader(t *testing.T) {
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&trickle{pieces: []string{`{"errcode":90018,`}}, failing{}), io.NopCloser(nil)}
	resp := jsonAnswer(200, "")
	resp.Body = body
	requireCloses(t, time.Second, dingtalk.Answer(resp))
	got, err := io.ReadAll(resp.Body)
	require.Equal(t, io.ErrClosedPipe, err)
	require.Equal(t, `{"errcode":90018,`, string(got))
}

// failing is a reader that only fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
