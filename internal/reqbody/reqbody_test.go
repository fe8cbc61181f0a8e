package reqbody_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/reqbody"
)

func request(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/", body)
	require.NoError(t, err)
	return r
}

// requireLook looks at half of a body, and then sends it.
func requireLook(t *testing.T, r *http.Request) {
	t.Helper()
	for range 2 {
		var seen []byte
		require.True(t, reqbody.Look(r, func(body io.Reader) {
			var err error
			seen, err = io.ReadAll(io.LimitReader(body, 5))
			require.NoError(t, err)
		}))
		require.Equal(t, "hello", string(seen))
	}
	sent, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, "hello world", string(sent))
	require.NoError(t, r.Body.Close())
}

func TestLook(t *testing.T) { requireLook(t, request(t, strings.NewReader("hello world"))) }

// TestLook_TheOneBody: GetBody rewinds it.
func TestLook_TheOneBody(t *testing.T) {
	for name, wrap := range map[string]func(io.Reader) io.ReadCloser{
		"as it is":       io.NopCloser,
		"in a new cover": func(r io.Reader) io.ReadCloser { return &cover{Reader: r} },
	} {
		t.Run(name, func(t *testing.T) {
			r, one := request(t, nil), bytes.NewReader([]byte("hello world"))
			r.GetBody = func() (io.ReadCloser, error) {
				_, err := one.Seek(0, io.SeekStart)
				return wrap(one), err
			}
			r.Body = wrap(one)
			requireLook(t, r)
		})
	}
}

// A cover counts how often it is closed.
type cover struct {
	io.Reader
	closed int
}

func (c *cover) Close() error { c.closed++; return nil }

// TestLook_Closes copies, but not the body that is to be sent.
func TestLook_Closes(t *testing.T) {
	r := request(t, nil)
	one, copies := &cover{Reader: strings.NewReader("x")}, []*cover{}
	r.Body = one
	r.GetBody = func() (io.ReadCloser, error) { return one, nil }
	require.True(t, reqbody.Look(r, func(io.Reader) {}))
	require.Zero(t, one.closed)

	r.GetBody = func() (io.ReadCloser, error) {
		copies = append(copies, &cover{Reader: strings.NewReader("x")})
		return copies[len(copies)-1], nil
	}
	require.True(t, reqbody.Look(r, func(io.Reader) {}))
	for _, c := range copies {
		require.Equal(t, 1, c.closed)
	}
}

// A parts is a body of a type whose values Go cannot compare.
type parts struct {
	io.Reader
	_      []string
	closed *int
}

func (p parts) Close() error { *p.closed++; return nil }

// TestLook_NotComparable takes each body of such a type for a copy.
func TestLook_NotComparable(t *testing.T) {
	r, closed := request(t, nil), 0
	r.GetBody = func() (io.ReadCloser, error) { return parts{Reader: strings.NewReader("x"), closed: &closed}, nil }
	r.Body, _ = r.GetBody()
	require.True(t, reqbody.Look(r, func(io.Reader) {}))
	require.Equal(t, 2, closed)
}

// TestMembers walks through what is an object, as far as it may read, and through a body inside a walk.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		body  string
		most  int64
		names string
		whole bool
	}{
		{`{"a":1,"b":{"c":2},"d":"x"}`, 100, "a b d ", true},
		{"\ufeff" + `{"a":1}`, 100, "a ", true},
		{` {} `, 100, "", true},
		{`{"a":1,"b":2}`, 8, "a ", false},
		{`{"a":1,"b"`, 100, "a ", false},
		{`[{"a":1}]`, 100, "", false},
		{``, 100, "", false},
		{`{"a":"` + strings.Repeat("x", 100_000) + `","b":1}`, 200_000, "a b ", true},
		{`{"a":"` + strings.Repeat("x", 100_000) + `","b":1}`, 100_000, "a ", false},
	} {
		r, names, inside := request(t, strings.NewReader(c.body)), "", 0
		whole := reqbody.Members(r, c.most, func(json *jsonscan.Scanner, name []byte) bool {
			names += string(name) + " "
			reqbody.Members(r, c.most, func(json *jsonscan.Scanner, _ []byte) bool { inside++; return json.Skip() })
			return json.Skip()
		})
		require.Equal(t, c.whole, whole, "%.40q", c.body)
		require.Equal(t, c.names, names, "%.40q", c.body)
		require.Equal(t, strings.Count(names, " ")*strings.Count(names, " "), inside, "%.40q", c.body)
	}
	require.False(t, reqbody.Members(request(t, nil), 100, nil))
}

func TestLook_Nothing(t *testing.T) {
	r := request(t, nil)
	require.False(t, reqbody.Look(r, nil))
	r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	require.False(t, reqbody.Look(r, nil))
}

// TestForm_ThatIsLong: a value that is cut off by the bound of a look is not there, and the values before it are.
func TestForm_ThatIsLong(t *testing.T) {
	for _, c := range []struct {
		before, after int // bytes of the value of "id" before the bound and behind it
		want          string
	}{
		{5, 0, "xxxxx"},
		{5, 1, ""},
		{0, 5, ""},
		{-10, 15, ""}, // its name is cut off, too
	} {
		const most = 64 << 10
		text := "a=1&b=" + strings.Repeat("y", most-len("a=1&b=&id=")-c.before) + "&id=" + strings.Repeat("x", c.before+c.after)
		for _, more := range []string{"", "&c=2"} {
			values := reqbody.Form(request(t, strings.NewReader(text+more)))
			require.Equal(t, "1", values.Get("a"))
			require.Equal(t, c.want, values.Get("id"), "%d before, %d behind", c.before, c.after)
			require.Empty(t, values.Get("c"))
		}
	}
	require.Empty(t, reqbody.Form(request(t, strings.NewReader(strings.Repeat("x", 65<<10)))), "no name is whole")
}
