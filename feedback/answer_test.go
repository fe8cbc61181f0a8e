package feedback_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
