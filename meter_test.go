package throttle_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// A tally is a meter that notes what it sees: the number behind the last "=" is the cost.
type tally struct {
	text   bytes.Buffer
	asked  int
	writes int
	err    error // of Write
}

func (m *tally) Write(p []byte) (int, error) {
	m.writes++
	m.text.Write(p)
	return len(p), m.err
}

func (m *tally) Cost() int {
	m.asked++
	all := m.text.String()
	n, err := strconv.Atoi(strings.TrimSpace(all[strings.LastIndex(all, "=")+1:]))
	if err != nil {
		return -1
	}
	return n
}

// metered is a policy of 100 an hour whose requests cost 10 until the meter says what they did cost.
func metered(m throttle.Meter) throttle.Policy {
	return throttle.Policy{
		Name: "p", Limit: throttle.PerHour(100), Cost: func(*http.Request) int { return 10 },
		Meter: func(*http.Response) throttle.Meter { return m },
	}
}

// streaming is a base whose answer has the body.
func streaming(body io.ReadCloser, header ...string) base {
	return func(r *http.Request) (*http.Response, error) {
		resp := must(answer(200, "", header...)(r))
		resp.Body, resp.ContentLength = body, -1
		return resp, nil
	}
}

// meter sends a request and has read do what a caller does with the body. It returns what the store
// was told of the cost.
func meter(t *testing.T, b base, read func(io.ReadCloser), policies ...throttle.Policy) (settled [][]int, seen *events) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		seen = &events{}
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(policies...), Base: b, Observe: seen.observe}))
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		read(resp.Body)
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		settled = store.settled
	})
	return settled, seen
}

// readAll reads a body to its end, and closes it.
func readAll(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
}

// TestMeterPassesBytesOn: the caller has each byte before the upstream writes the next.
func TestMeterPassesBytesOn(t *testing.T) {
	var w *io.PipeWriter
	m := &tally{}
	const text = "data: a\r\n\r\ndata: cost=42"
	piped := base(func(req *http.Request) (*http.Response, error) { // in the bubble
		var r *io.PipeReader
		r, w = io.Pipe()
		return streaming(r)(req)
	})
	settled, _ := meter(t, piped, func(body io.ReadCloser) {
		go func() {
			for i := range len(text) {
				_, _ = w.Write([]byte{text[i]})
				time.Sleep(time.Hour)
			}
			_ = w.Close()
		}()
		begin, p := time.Now(), make([]byte, 100)
		for i := range len(text) {
			n, err := body.Read(p)
			require.NoError(t, err)
			require.Equal(t, text[i:i+1], string(p[:n]))
			require.Equal(t, time.Duration(i)*time.Hour, time.Since(begin))
		}
		n, err := body.Read(p)
		require.Zero(t, n)
		require.Equal(t, io.EOF, err)
		require.NoError(t, body.Close())
	}, metered(m))
	require.Equal(t, [][]int{{42}}, settled)
	require.Equal(t, 1, m.asked)
	require.Equal(t, text, m.text.String())
}

// TestMeterOfBodiesThatAreCut: whoever cuts a body, and wherever, the meter says once what it knows.
func TestMeterOfBodiesThatAreCut(t *testing.T) {
	const text = "..=42"
	broken := errors.New("the connection is gone")
	for at := range len(text) + 1 {
		want := map[int][][]int{4: {{4}}, 5: {{42}}}[at] // a tally takes a number that is cut for a number
		for name, c := range map[string]struct {
			body io.Reader
			read func(io.ReadCloser)
		}{
			"by the upstream": {io.MultiReader(strings.NewReader(text[:at]), errReader{broken}), readAll},
			"by the caller": {strings.NewReader(text), func(body io.ReadCloser) {
				_, err := io.ReadFull(body, make([]byte, at))
				require.NoError(t, err)
				require.NoError(t, body.Close())
				require.NoError(t, body.Close())
			}},
			"by both": {io.MultiReader(strings.NewReader(text[:at]), errReader{broken}), func(body io.ReadCloser) {
				readAll(body)
				readAll(body)
			}},
		} {
			m := &tally{}
			settled, _ := meter(t, streaming(io.NopCloser(c.body)), c.read, metered(m))
			require.Equal(t, want, settled, "%s at %d", name, at)
			require.Equal(t, 1, m.asked)
		}
	}
}

type errReader struct{ error }

func (r errReader) Read([]byte) (int, error) { return 0, r.error }

// TestMeterOfAForgottenBody: a body that nobody reads keeps its estimate, and no goroutine.
func TestMeterOfAForgottenBody(t *testing.T) {
	m := &tally{}
	settled, _ := meter(t, answer(200, "=42"), func(io.ReadCloser) {}, metered(m))
	require.Empty(t, settled)
	require.Zero(t, m.asked)
}

// TestMeterFreesSlots: a caller that closes early frees what is in flight.
func TestMeterFreesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metered(nil)
		p.Meter = func(*http.Response) throttle.Meter { return &tally{} }
		tr := newTransport(t, answer(200, "=42"), p, throttle.Policy{Name: "at once", Limit: throttle.Concurrency(1)})
		for range 3 {
			resp := must(tr.RoundTrip(get(t, home)))
			require.NoError(t, resp.Body.Close())
		}
	})
}

// TestMeterBesideAnswer: a meter is for rows of which the answer itself does not know the cost.
// Costs that are settled at two times do not undo each other.
func TestMeterBesideAnswer(t *testing.T) {
	first, second := metered(&tally{}), metered(&tally{})
	first.Name, first.Answer = "first", func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(3) }
	first.Meter = func(*http.Response) throttle.Meter { panic("asked") }
	second.Name, second.Answer = "second", func(*http.Response) throttle.Answer { return throttle.Answer{} }
	settled, seen := meter(t, answer(200, "=42"), readAll, first, second)
	require.Len(t, settled, 2, "the store hears of the answer and of the body, in any order")
	require.Equal(t, []int{3, 42}, settled[1])
	require.Equal(t, []throttle.EventKind{throttle.EventStarted}, seen.kinds())

	synctest.Test(t, func(t *testing.T) { // the store has it as it was told
		tr := newTransport(t, answer(200, "=42"), first, second)
		readAll(must(tr.RoundTrip(get(t, home))).Body)
		synctest.Wait()
		require.Equal(t, 3, countedBy(t, tr, "first"))
		require.Equal(t, 42, countedBy(t, tr, "second"))
	})
}

// countedBy is what a budget without a key has counted.
func countedBy(t *testing.T, tr *throttle.Transport, policy string) int {
	t.Helper()
	return must(must(tr.Limiter(policy)).Status(t.Context(), "")).Used
}

// TestMeterIsNotAsked: there is no body, no cost to be settled, or the policy wants no meter.
func TestMeterIsNotAsked(t *testing.T) {
	never := func(*http.Response) throttle.Meter { t.Error("asked"); return nil }
	free, unlimited := metered(nil), metered(nil)
	free.Cost = func(*http.Request) int { return 0 }
	free.Name, unlimited.Name = "free", "unlimited"
	free.Meter, unlimited.Meter = never, never
	unlimited.Limit = throttle.Unlimited()
	settled, _ := meter(t, answer(200, "=42"), readAll, free, unlimited)
	require.Empty(t, settled)

	empty := metered(nil)
	empty.Meter = never
	settled, _ = meter(t, streaming(http.NoBody), readAll, empty)
	require.Empty(t, settled)

	settled, _ = meter(t, answer(200, "=42"), func(body io.ReadCloser) {
		require.Equal(t, "=42", string(must(io.ReadAll(body))))
	}, metered(nil))
	require.Empty(t, settled)
}

// TestMeterOfCodedBodies: a meter sees the text of a body that the base did not decode, and the
// caller sees the body as it came.
func TestMeterOfCodedBodies(t *testing.T) {
	pack := func(w io.WriteCloser, packed *bytes.Buffer, text string) string {
		must(io.WriteString(w, text))
		require.NoError(t, w.Close())
		return packed.String()
	}
	zipped := func(text string) string { var b bytes.Buffer; return pack(gzip.NewWriter(&b), &b, text) }
	var b bytes.Buffer
	deflated := pack(zlib.NewWriter(&b), &b, "a=42")
	for _, c := range []struct {
		name, coding, body string
		want               [][]int
	}{
		{"gzip", "gzip", zipped("a=42"), [][]int{{42}}},
		{"gzip without its end", "GZIP", zipped("a=42 ")[:20], [][]int{{42}}},
		{"no gzip", "gzip", "a=42", nil},
		{"nothing", "gzip", "", nil},
		{"deflate", "deflate", deflated, [][]int{{42}}},
		{"too long", "gzip", strings.Repeat(zipped("a=42 "), 40_000), nil},
		{"a bomb", "gzip", zipped("=42" + strings.Repeat(" ", 16<<20-3) + "1"), [][]int{{42}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			settled, seen := meter(t, answer(200, c.body, "Content-Encoding", c.coding), func(body io.ReadCloser) {
				require.Equal(t, c.body, string(must(io.ReadAll(body))))
				require.NoError(t, body.Close())
			}, metered(&tally{}))
			require.Equal(t, c.want, settled)
			require.Equal(t, []throttle.EventKind{throttle.EventStarted}, seen.kinds())
		})
	}
	settled, seen := meter(t, answer(200, "=42", "Content-Encoding", "br"), readAll, metered(&tally{}))
	require.Empty(t, settled)
	require.Equal(t, []throttle.EventKind{throttle.EventStarted, throttle.EventIllegible}, seen.kinds())
}

// TestMeterThatHasSeenEnough: an error of Write is no failure.
func TestMeterThatHasSeenEnough(t *testing.T) {
	m := &tally{err: io.ErrShortWrite}
	body := io.NopCloser(io.MultiReader(strings.NewReader("=4"), strings.NewReader("2")))
	settled, seen := meter(t, streaming(body), readAll, metered(m))
	require.Equal(t, [][]int{{4}}, settled)
	require.Equal(t, 1, m.writes)
	require.Equal(t, []throttle.EventKind{throttle.EventStarted}, seen.kinds())
}

// A badMeter panics.
type badMeter struct{ writes, costs bool }

func (m badMeter) Write(p []byte) (int, error) {
	if m.writes {
		panic(secretToken)
	}
	return len(p), nil
}

func (m badMeter) Cost() int {
	if m.costs {
		panic(secretToken)
	}
	return 42
}

// TestMeterThatPanics: the caller gets the body, the estimate stays, and Observe is told.
func TestMeterThatPanics(t *testing.T) {
	bad := metered(nil)
	bad.Meter = func(*http.Response) throttle.Meter { panic(secretToken) }
	for name, p := range map[string]throttle.Policy{"Meter": bad, "Write": metered(badMeter{writes: true}), "Cost": metered(badMeter{costs: true})} {
		t.Run(name, func(t *testing.T) {
			settled, seen := meter(t, answer(200, "=42"), func(body io.ReadCloser) {
				require.Equal(t, "=42", string(must(io.ReadAll(body))))
			}, p)
			require.Empty(t, settled)
			e := seen.first(t, throttle.EventFunctionFailed)
			require.ErrorContains(t, e.Err, `policy "p": Meter: panicked with a string at meter_test.go:`)
			require.NotContains(t, e.Err.Error(), secretToken)
		})
	}
}

// TestMeterWhileTheCallerCloses: a body may be closed while it is read.
func TestMeterWhileTheCallerCloses(t *testing.T) {
	for range 50 {
		m := &tally{}
		settled, _ := meter(t, answer(200, strings.Repeat(".", 1000)+"=42"), func(body io.ReadCloser) {
			var all sync.WaitGroup
			all.Go(func() { _, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 10)) })
			all.Go(func() { _ = body.Close() })
			all.Wait()
		}, metered(m))
		require.LessOrEqual(t, len(settled), 1)
		require.Equal(t, 1, m.asked)
	}
}

// TestMeterAndAStoreThatIsAway: nobody waits for the store, and what was asked of it ends.
func TestMeterAndAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := newSpy(), &events{}
		store.settle = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(metered(&tally{})), Base: answer(200, "=42"), Observe: seen.observe}))
		begin := time.Now()
		readAll(must(tr.RoundTrip(get(t, home))).Body)
		require.Zero(t, time.Since(begin))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []throttle.EventKind{throttle.EventStarted, throttle.EventStoreFailed}, seen.kinds())
	})
}
