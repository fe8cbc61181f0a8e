package feedback_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// A countingBody counts the bytes that were read of a body.
type countingBody struct {
	io.Reader
	n int
}

func (b *countingBody) Read(p []byte) (n int, err error) {
	n, err = b.Reader.Read(p)
	b.n += n
	return n, err
}

func (b *countingBody) Close() error { return nil }

// TestLooksOfManyRows: of many classifiers that look at one answer each sees what it would see alone,
// in whichever order they look, and together they read no more of the body than the one that reads
// most.
func TestLooksOfManyRows(t *testing.T) {
	soak.WithoutRace(t)
	values := []string{
		`0`, `88`, `-1`, `"88"`, `""`, `null`, `true`, `1.5e3`, `01`, `"a\"b"`, "\"a\nb\"", `"` + strings.Repeat("x", 90) + `"`,
		`{"code":7,"sub":{"code":"q"}}`, `[{"code":1},{"code":2}]`, `[]`, `{}`, `{"code":`, `[1,`, `nul`, `"cut`,
	}
	names := []string{"errcode", "code", "error", "errors", "sub_code", `er\u0072code`, "a"}
	fields := [][]string{
		{"errcode"}, {"code"}, {"error.code"}, {"error.sub.code"}, {"errors.*.code"}, {"errors.1.code"}, {"errcode", "code"},
		{"code", "errcode"}, {"error.code", "errors.0.code", "a", "sub_code", "code"}, {"*"}, {"*.code"}, {"absent"}, {"0.code"},
	}
	found := 0

	// In virtual time, because a look at a body has an end: on a busy machine the look of a classifier alone would see less.
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(3000) {
			r := rand.New(rand.NewPCG(seed, 1))
			body := randomObject(r, names, values)
			fresh := func() (*http.Response, *countingBody) {
				b := &countingBody{Reader: strings.NewReader(body)}
				if seed%3 == 0 {
					b.Reader = iotest.OneByteReader(b.Reader)
				}
				return &http.Response{StatusCode: 400, Header: http.Header{}, Body: b, ContentLength: -1}, b
			}

			shared, read := fresh()
			most := 0
			for range 12 {
				look := feedback.Codes{
					Fields: fields[r.IntN(len(fields))], Max: int64(1 + r.IntN(2*len(body)+1)),
					Lasts: map[string]time.Duration{"88": 1, "0": 2, "*b": 3, "7": 4, "2": 5, "q": 6, "x*": 7},
				}
				alone, aloneRead := fresh()
				want := look.Answer(alone)
				require.Equal(t, want, look.Answer(shared), "seed %d: %+v in %q", seed, look, body)
				most = max(most, aloneRead.n)
				if want.Close > 0 {
					found++
				}
			}
			require.LessOrEqual(t, read.n, most, "seed %d: %q", seed, body)
			requireBody(t, body, shared)
		}
	})
	require.Greater(t, found, 1000, "premise: many looks find a code")
}

// randomObject returns a JSON object, or something like one.
func randomObject(r *rand.Rand, names, values []string) string {
	var members []string
	for range r.IntN(6) {
		members = append(members, fmt.Sprintf(`"%s" : %s`, names[r.IntN(len(names))], values[r.IntN(len(values))]))
	}
	if r.IntN(8) == 0 { // more members than are kept
		for i := range 70 {
			members = append(members, fmt.Sprintf(`"m%d":%d`, i, i))
		}
		members = append(members, `"errcode":88`, `"error":{"code":7}`)
	}
	body := "{" + strings.Join(members, ",") + "}"
	switch r.IntN(6) {
	case 0:
		body = body[:r.IntN(len(body)+1)]
	case 1:
		body = "[" + body + "]"
	case 2:
		body = "\ufeff " + body
	}
	return body
}

// TestFieldsHaveTheirFullNames: a code is found where its field leads, behind however many members, and
// nowhere else.
func TestFieldsHaveTheirFullNames(t *testing.T) {
	var many strings.Builder
	for i := range 70 {
		fmt.Fprintf(&many, `"m%d":{},`, i)
	}
	for _, c := range []struct {
		field, body string
		want        time.Duration
	}{
		{"errcode", `{"errcode":88}`, time.Second},
		{"errcode", `{` + many.String() + `"errcode":88}`, time.Second},
		{"a.b", `{"a":{"b":88}}`, time.Second},
		{"*", `{"a":0,"b":88}`, time.Second},
		{"a.*", `{"a":[0,88]}`, time.Second},
		{"a.1", `{"a":[0,88]}`, time.Second},
		{"errcode", `{"errcod":88}`, 0},
		{"errcode", `{"errcode_":88}`, 0},
		{"errcode", `{"":88,"e":88}`, 0},
		{"a.b", `{"a.b":88}`, 0},
		{"a.b.c", `{"a.b":{"c":88}}`, 0},
		{"a.b", `{"a":88}`, 0},
		{"a", `{"a":{"b":88}}`, 0},
		{"*a", `{"a":88}`, 0},
		{"a.1", `{"a":[88,0]}`, 0},
	} {
		look := feedback.Codes{Fields: []string{c.field}, Lasts: map[string]time.Duration{"88": time.Second}}
		requireCloses(t, c.want, look.Answer(jsonAnswer(200, c.body)), "%s in %s", c.field, c.body)
	}
}

// TestLooksOfManyRowsCostNoMemory: once an answer was read, further looks allocate nothing.
func TestLooksOfManyRowsCostNoMemory(t *testing.T) {
	resp := jsonAnswer(200, `{"errcode":0,"errmsg":"ok","result":{"id":1},"request_id":"15s4"}`)
	look := feedback.First(
		feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"88": time.Second}}.Answer,
		feedback.Codes{Fields: []string{"error.code", "code"}, Lasts: map[string]time.Duration{"Limit*": time.Second}}.Answer,
	)
	require.Zero(t, testing.AllocsPerRun(100, func() { look(resp) }))
}

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
	b.pieces[0] = b.pieces[0][n:]
	if b.pieces[0] == "" {
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

func TestWhen(t *testing.T) {
	resp := answer(429, "", "Content-Type", `Application/Problem+JSON ; charset="`,
		"X-Scope", "shared", "X-Scope", "Quota-Tenant-Based", "X-Empty", "")
	resp.Request = httptest.NewRequest("POST", "https://API.example.com.:8443/v1/orders/7?secret=1", nil)
	type fields = map[string]string
	for _, c := range []struct {
		name string
		when feedback.When
		want bool
	}{
		{"all", feedback.When{}, true},
		{"a status", feedback.When{Status: []int{403, 429}}, true},
		{"another status", feedback.When{Status: []int{403, 503}}, false},
		{"a method", feedback.When{Method: []string{"PUT", "post"}}, true},
		{"another method", feedback.When{Method: []string{"GET"}}, false},
		{"the host", feedback.When{Host: []string{"api.example.com"}}, true},
		{"below a host", feedback.When{Host: []string{"*.example.com"}}, true},
		{"another host", feedback.When{Host: []string{"example.com", "api.example.org"}}, false},
		{"the path", feedback.When{Path: []string{"/v1/orders/7"}}, true},
		{"below a path", feedback.When{Path: []string{"/v2/*", "/v1/*"}}, true},
		{"part of a path", feedback.When{Path: []string{"/v1/orders"}}, false},
		{"paths have cases", feedback.When{Path: []string{"/V1/*"}}, false},
		{"a media type", feedback.When{Media: []string{"application/problem+json"}}, true},
		{"a kind of media", feedback.When{Media: []string{"text/html", "application/*"}}, true},
		{"a suffix", feedback.When{Media: []string{"*+json"}}, true},
		{"another media type", feedback.When{Media: []string{"application/json"}}, false},
		{"a field", feedback.When{Header: fields{"x-scope": ""}}, true},
		{"a field that is empty", feedback.When{Header: fields{"X-Empty": ""}}, true},
		{"its value", feedback.When{Header: fields{"X-Scope": "SHARED"}}, true},
		{"a value in another line", feedback.When{Header: fields{"X-Scope": "quota-*"}}, true},
		{"within a value", feedback.When{Header: fields{"X-Scope": "*tenant*"}}, true},
		{"another value", feedback.When{Header: fields{"X-Scope": "global"}}, false},
		{"no such field", feedback.When{Header: fields{"X-Other": ""}}, false},
		{"both fields", feedback.When{Header: fields{"X-Scope": "", "Date": date}}, true},
		{"one of two fields", feedback.When{Header: fields{"X-Scope": "", "X-Other": ""}}, false},
		{"everything", feedback.When{Status: []int{429}, Method: []string{"POST"}, Path: []string{"/v1/*"},
			Host: []string{"*"}, Media: []string{"*"}, Header: fields{"X-Scope": "*"}}, true},
		{"everything but one", feedback.When{Status: []int{429}, Method: []string{"POST"}, Path: []string{"/v1/*"},
			Media: []string{"text/*"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			said := throttle.Refused(time.Minute).WithCost(12).WithLeft(*left(3, time.Second))
			want := throttle.Answer{}
			if c.want {
				want = said
			}
			require.Equal(t, want, c.when.Then(func(*http.Response) throttle.Answer { return said })(resp))
		})
	}
}

func TestWhenTheRequestIsUnknown(t *testing.T) {
	for _, when := range []feedback.When{
		{Method: []string{"*"}}, {Host: []string{"*"}}, {Path: []string{"*"}},
	} {
		require.Zero(t, when.Then(feedback.For(time.Second))(answer(429, "")))
	}
	requireCloses(t, time.Second, feedback.When{}.Then(feedback.For(time.Second))(answer(429, "")))

	unsent := answer(200, "")
	unsent.Request = &http.Request{Method: "GET"}
	require.Zero(t, feedback.When{Method: []string{"GET"}}.Then(feedback.For(time.Second))(unsent))

	get := answer(200, "")
	get.Request = httptest.NewRequest("GET", "/", nil)
	get.Request.Method = "" // a client's GET
	requireCloses(t, time.Second, feedback.When{Method: []string{"GET"}}.Then(feedback.For(time.Second))(get))
}

func TestWhenThereIsNoContentType(t *testing.T) {
	require.Zero(t, feedback.When{Media: []string{"application/*"}}.Then(feedback.For(time.Second))(answer(200, "")))
}
